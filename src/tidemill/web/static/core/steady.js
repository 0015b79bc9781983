// @ts-check
/** Lists by number that do not change their order under somebody's eyes. */

/**
 * Sorted as they first came: who was there keeps the place, and who is new comes last.
 * @template T
 * @param {(row: T) => string} keyOf
 * @returns {(rows: T[]) => T[]}
 */
export function steady(keyOf) {
  /** @type {Map<string, number>} */
  const places = new Map();
  return (rows) => {
    for (const row of rows) if (!places.has(keyOf(row))) places.set(keyOf(row), places.size);
    return [...rows].sort((a, b) => /** @type {number} */ (places.get(keyOf(a))) - /** @type {number} */ (places.get(keyOf(b))));
  };
}
