// @ts-check
/** Tables that people paste or keep in small files: read here, to become the inputs of a request. */
import { parse } from "./json.js";

/**
 * Objects of a text: a JSON list, an object a line, or a table whose first line names the columns, between tabs,
 * semicolons or commas. What cannot be read is an error that says where.
 * @param {string} text
 * @returns {Array<Record<string, any>>}
 */
export function readTable(text) {
  const trimmed = text.replace(/^\uFEFF/, "").trim();
  if (trimmed === "") return [];
  if (trimmed.startsWith("[")) return objects(parsed(trimmed, "the list"));
  if (trimmed.startsWith("{")) return objects(trimmed.split(/\r?\n/).filter((line) => line.trim()).map((line, n) => parsed(line, `line ${n + 1}`)));
  const [head, ...rows] = cells(trimmed, delimiterOf(trimmed));
  const names = head.map((name) => name.trim());
  return rows.map((row, n) => {
    if (row.length > names.length) throw new Error(`row ${n + 1} has ${row.length} values, and there are ${names.length} columns`);
    return Object.fromEntries(row.map((value, at) => [names[at], value.trim()]).filter(([, value]) => value !== ""));
  });
}

/** @param {string} text @param {string} where */
function parsed(text, where) {
  try {
    return parse(text);
  } catch (error) {
    throw new Error(`${where} is not JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/** @param {any} found */
function objects(found) {
  if (!Array.isArray(found)) throw new Error("a list of objects is wanted");
  const odd = found.findIndex((one) => one === null || typeof one !== "object" || Array.isArray(one));
  if (odd >= 0) throw new Error(`entry ${odd + 1} is no object`);
  return found;
}

/** The mark that the first line has most of. @param {string} text */
function delimiterOf(text) {
  const first = text.split(/\r?\n/, 1)[0];
  const counted = ["\t", ";", ","].map((mark) => ({ mark, n: first.split(mark).length }));
  return counted.reduce((best, one) => (one.n > best.n ? one : best)).mark;
}

/** @param {string} text @param {string} mark @returns {string[][]} */
function cells(text, mark) {
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
    else if (letter === mark || letter === "\n") {
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
