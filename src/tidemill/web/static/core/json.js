// @ts-check
/**
 * JSON that keeps all digits of a number, also where JavaScript would round it.
 */

/** A number with its source text. */
export class ExactNumber {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }

  toString() {
    return this.source;
  }

  toJSON() {
    return this.source;
  }
}

/** @param {string} text @returns {any} */
export function parse(text) {
  return JSON.parse(text, /** @type {any} */ (reviveUnsafeNumber));
}

/** Like `parse`, but also keeps the source text of numbers such as 10.0. For rows, which look as in their file. @param {string} text @returns {any} */
export function parseExactly(text) {
  return JSON.parse(text, /** @type {any} */ (reviveExactNumber));
}

/** @param {string} _key @param {any} value @param {{source?: string}} context */
function reviveExactNumber(_key, value, context) {
  if (typeof value !== "number" || context?.source === undefined || String(value) === context.source) return value;
  return new ExactNumber(context.source);
}

/** @param {string} _key @param {any} value @param {{source?: string}} context */
function reviveUnsafeNumber(_key, value, context) {
  if (typeof value !== "number" || context?.source === undefined) return value;
  if (Number.isSafeInteger(value) || String(value) === context.source) return value;
  return new ExactNumber(context.source);
}

/**
 * Serializes a value that `parse` returned.
 * @param {any} value
 * @param {number} [indent] 0 for a single line
 * @param {string} [before]
 * @returns {string}
 */
export function stringify(value, indent = 0, before = "") {
  if (value instanceof ExactNumber) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = before + " ".repeat(indent);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const parts = Array.isArray(value)
    ? value.map((one) => stringify(one, indent, inner))
    : Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}:${indent ? " " : ""}${stringify(one, indent, inner)}`);
  if (parts.length === 0) return open + close;
  return indent ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${before}${close}` : open + parts.join(",") + close;
}

/** The text of a table cell: strings as they are, other values as compact JSON. @param {any} value */
export function cellText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : stringify(value);
}
