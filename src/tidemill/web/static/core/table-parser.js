// @ts-check
/** Parses tables that users paste or drop as small files. */
import { parse } from "./json.js";

/**
 * Parses a JSON list, one JSON object per line, or a table with a header row, separated by tabs, semicolons or commas.
 * Throws an error that names the line or row.
 * @param {string} text
 * @returns {Array<Record<string, any>>}
 */
export function parseTable(text) {
  const trimmed = text.replace(/^\uFEFF/, "").trim();
  if (trimmed === "") return [];
  if (trimmed.startsWith("[")) return requireObjects(parseJson(trimmed, "the list"));
  if (trimmed.startsWith("{")) return requireObjects(trimmed.split(/\r?\n/).filter((line) => line.trim()).map((line, n) => parseJson(line, `line ${n + 1}`)));
  const [head, ...rows] = splitCells(trimmed, detectDelimiter(trimmed));
  const names = head.map((name) => name.trim());
  return rows.map((row, n) => {
    if (row.length > names.length) throw new Error(`row ${n + 1} has ${row.length} values, but the header has ${names.length} columns`);
    return Object.fromEntries(row.map((value, at) => [names[at], value.trim()]).filter(([, value]) => value !== ""));
  });
}

/** @param {string} text @param {string} where */
function parseJson(text, where) {
  try {
    return parse(text);
  } catch (error) {
    throw new Error(`${where} is not valid JSON: ${/** @type {Error} */ (error).message}`, { cause: error });
  }
}

/** @param {any} entries */
function requireObjects(entries) {
  if (!Array.isArray(entries)) throw new Error("expected a list of objects");
  const odd = entries.findIndex((one) => one === null || typeof one !== "object" || Array.isArray(one));
  if (odd >= 0) throw new Error(`entry ${odd + 1} is not an object`);
  return entries;
}

/** The delimiter that is most frequent in the first line. @param {string} text */
function detectDelimiter(text) {
  const first = text.split(/\r?\n/, 1)[0];
  const counted = ["\t", ";", ","].map((mark) => ({ mark, n: first.split(mark).length }));
  return counted.reduce((best, one) => (one.n > best.n ? one : best)).mark;
}

/** @param {string} text @param {string} delimiter @returns {string[][]} */
function splitCells(text, delimiter) {
  /** @type {string[][]} */
  const rows = [];
  let row = [];
  let cell = "";
  let isQuoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const letter = text[at];
    if (isQuoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') cell += text[(at += 1)];
      else isQuoted = false;
    } else if (letter === '"' && cell === "") isQuoted = true;
    else if (letter === delimiter || letter === "\n") {
      row.push(cell.replace(/\r$/, ""));
      cell = "";
      if (letter === "\n") {
        if (row.some((one) => one !== "")) rows.push(row);
        row = [];
      }
    } else cell += letter;
  }
  rows.push([...row, cell]);
  return rows;
}
