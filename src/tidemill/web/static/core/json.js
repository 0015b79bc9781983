// @ts-check
/**
 * JSON whose numbers keep all their digits: one that JavaScript would round stays what was written.
 */

/** A number as it was written. */
export class Exact {
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
  return JSON.parse(text, /** @type {any} */ (keep));
}

/** The same, but that also a number like 10.0 stays as it was written: for rows, which are shown as files have them. @param {string} text @returns {any} */
export function parseExactly(text) {
  return JSON.parse(text, /** @type {any} */ (keepAsWritten));
}

/** @param {string} _key @param {any} value @param {{source?: string}} context */
function keepAsWritten(_key, value, context) {
  if (typeof value !== "number" || context?.source === undefined || String(value) === context.source) return value;
  return new Exact(context.source);
}

/** @param {string} _key @param {any} value @param {{source?: string}} context */
function keep(_key, value, context) {
  if (typeof value !== "number" || context?.source === undefined) return value;
  if (Number.isSafeInteger(value) || String(value) === context.source) return value;
  return new Exact(context.source);
}

/**
 * Text of a value that `parse` made.
 * @param {any} value
 * @param {number} [indent] 0 for one line
 * @param {string} [before]
 * @returns {string}
 */
export function stringify(value, indent = 0, before = "") {
  if (value instanceof Exact) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = before + " ".repeat(indent);
  const [open, close] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  const parts = Array.isArray(value)
    ? value.map((one) => stringify(one, indent, inner))
    : Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}:${indent ? " " : ""}${stringify(one, indent, inner)}`);
  if (parts.length === 0) return open + close;
  return indent ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${before}${close}` : open + parts.join(",") + close;
}

/** What stands in a cell: text as it is, everything else as compact JSON. @param {any} value */
export function cellText(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : stringify(value);
}
