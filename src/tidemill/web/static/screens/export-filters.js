// @ts-check
/** Which rows: conditions on fields, with the operators and inputs that fit their types. */
import { h } from "../core/dom.js";
import { query, setQuery } from "../core/router.js";
import { effect, signal, untracked } from "../core/signal.js";
import { icon } from "../ui/icons.js";

/** @typedef {{field: string, op: string, value: string}} Condition */

/** @type {Record<string, string>} */
const SAID = { eq: "is", ne: "is not", lt: "is less than", lte: "is at most", gt: "is more than", gte: "is at least", between: "is from … to", in: "is one of", like: "is like (% any text)", is_null: "is empty" };
const ALL = Object.keys(SAID);
const INPUTS = { integer: "number", number: "number", date: "date", time: "time", boolean: "select" };

/** @param {string} type */
function operators(type) {
  if (type === "json") return ["is_null"];
  if (["boolean", "array", "bytes"].includes(type)) return ["eq", "ne", "in", "is_null"];
  return ["text", "other"].includes(type) ? ALL : ALL.filter((op) => op !== "like");
}

/** The conditions of the address. @param {URLSearchParams} said @returns {Condition[]} */
export function readFilters(said) {
  try {
    const found = JSON.parse(said.get("filters") ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one?.field === "string").map(({ field, op = "eq", value = "" }) => ({ field, op: String(op), value: String(value) })) : [];
  } catch {
    return [];
  }
}

/** As the API wants them. @param {URLSearchParams} said @param {any[]} fields */
export function filtersOf(said, fields) {
  /** @type {Record<string, Record<string, any>>} */
  const found = {};
  for (const { field, op, value } of readFilters(said)) {
    if (fields.length && !fields.some((one) => one.name === field)) continue;
    found[field] = { ...found[field], [op]: op === "in" || op === "between" ? listed(value) : op === "is_null" ? value !== "false" : value };
  }
  return found;
}

/** Values between commas; one with a comma in it stands in quotes. @param {string} text */
export function listed(text) {
  return [...text.matchAll(/\s*(?:"((?:[^"]|"")*)"|([^,]*))\s*(?:,|$)/g)].map((one) => (one[1] !== undefined ? one[1].replaceAll('""', '"') : one[2].trim())).filter((one, n, all) => one !== "" || n < all.length - 1);
}

/** @param {any[]} fields */
export function filterRows(fields) {
  const rows = signal(readFilters(query.peek()));
  let written = query.peek().get("filters") ?? "";
  effect(() => {
    // Back and forward: what the address says is shown.
    const said = query.value.get("filters") ?? "";
    if (said !== written) untracked(() => (rows.value = readFilters(query.peek())));
    written = said;
  });
  const write = () => {
    written = rows.peek().length ? JSON.stringify(rows.peek()) : "";
    setQuery({ filters: written }, { replace: true });
  };
  /** @param {number} n @param {Partial<Condition> | null} change @param {boolean} [anew] whether the row looks otherwise now */
  const put = (n, change, anew = true) => {
    const next = rows.peek().flatMap((one, at) => (at === n ? (change === null ? [] : [{ ...one, ...change }]) : [one]));
    if (anew) rows.value = next;
    else rows.peek().splice(0, rows.peek().length, ...next);
    write();
  };
  const add = () => {
    rows.value = [...rows.peek(), { field: fields[0].name, op: operators(fields[0].type)[0], value: "" }];
    write();
  };
  return h(
    "fieldset",
    { class: "stack tight" },
    h("legend", { class: "hint" }, () => (rows.value.length ? "Rows for which all of this holds" : "Rows: all")),
    () => rows.value.map((one, n) => condition(one, n, fields, put)),
    h("div", null, h("button", { type: "button", class: "small", on: { click: add } }, icon("plus"), "Add a filter")),
  );
}

/** @param {Condition} one @param {number} n @param {any[]} fields @param {(n: number, change: Partial<Condition> | null, anew?: boolean) => void} put */
function condition(one, n, fields, put) {
  const field = fields.find((known) => known.name === one.field) ?? fields[0];
  const allowed = operators(field.type);
  const valueOf = (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.target).value;
  const fieldSelect = h("select", { "aria-label": `Field of filter ${n + 1}`, on: { change: (/** @type {Event} */ event) => put(n, { field: valueOf(event), op: "", value: "" }) } }, fields.map((known) => h("option", { value: known.name, selected: known.name === one.field }, known.name)));
  const op = allowed.includes(one.op) ? one.op : allowed[0];
  if (op !== one.op) one.op = op;
  const opSelect = h("select", { "aria-label": `Operator of filter ${n + 1}`, on: { change: (/** @type {Event} */ event) => put(n, { op: valueOf(event), value: "" }) } }, allowed.map((known) => h("option", { value: known, selected: known === op }, SAID[known])));
  return h("div", { class: "row filter-row" }, fieldSelect, opSelect, valueInput(one, n, field, op, (value) => put(n, { value }, false)), h("button", { type: "button", class: "plain icon-only small", "aria-label": `Remove filter ${n + 1}`, on: { click: () => put(n, null) } }, icon("close")));
}

/** @param {Condition} one @param {number} n @param {any} field @param {string} op @param {(value: string) => void} change */
function valueInput(one, n, field, op, change) {
  const label = `Value of filter ${n + 1}`;
  const tell = (/** @type {Event} */ event) => change(/** @type {HTMLInputElement} */ (event.target).value);
  /** @param {string[][]} all */
  const select = (all) => h("select", { "aria-label": label, on: { change: tell } }, all.map(([value, says]) => h("option", { value, selected: one.value === value }, says)));
  if (op === "is_null") return select([["true", "yes"], ["false", "no"]]);
  if (op === "between") return pair(one, n, field, change);
  if (op === "in") return h("input", { type: "text", "aria-label": label, value: one.value, placeholder: "admin, editor", on: { input: tell } });
  if (field.allowed.length) return select([["", "Choose …"], ...field.allowed.map((/** @type {string} */ value) => [value, value])]);
  if (field.type === "boolean") return select([["", "Choose …"], ["true", "true"], ["false", "false"]]);
  const type = op === "like" ? "text" : (/** @type {any} */ (INPUTS)[field.type] ?? "text");
  return h("input", { type, step: type === "number" ? "any" : null, "aria-label": label, value: one.value, placeholder: field.type === "timestamp" ? "2026-11-15 12:00" : null, on: { input: tell } });
}

/** @param {Condition} one @param {number} n @param {any} field @param {(value: string) => void} change */
function pair(one, n, field, change) {
  const type = /** @type {any} */ (INPUTS)[field.type] ?? "text";
  const values = listed(one.value);
  const tell = () => change(ends.map((input) => `"${input.value.replaceAll('"', '""')}"`).join(","));
  const ends = ["From", "To"].map((label, at) => /** @type {HTMLInputElement} */ (h("input", { type, step: type === "number" ? "any" : null, "aria-label": `${label}, of filter ${n + 1}`, value: values[at] ?? "", on: { input: tell } })));
  return h("span", { class: "row" }, ends[0], "to", ends[1]);
}
