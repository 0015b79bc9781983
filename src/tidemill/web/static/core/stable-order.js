// @ts-check
/** Keeps the order of lists that are sorted by a changing number. */

/**
 * Returns a function that keeps known rows in their first order and puts new rows last.
 * @template T
 * @param {(row: T) => string} keyOf
 * @returns {(rows: T[]) => T[]}
 */
export function stableOrder(keyOf) {
  /** @type {Map<string, number>} */
  const positions = new Map();
  return (rows) => {
    for (const row of rows) if (!positions.has(keyOf(row))) positions.set(keyOf(row), positions.size);
    return rows.toSorted((a, b) => /** @type {number} */ (positions.get(keyOf(a))) - /** @type {number} */ (positions.get(keyOf(b))));
  };
}
