// @ts-check
/** The filter editor of an export: conditions on fields, with operators and inputs that match the field types. */
import { h } from "../core/dom.js";
import { query, setQuery } from "../core/router.js";
import { effect, signal, untracked } from "../core/signal.js";
import { icon } from "../ui/icons.js";

/** @typedef {{field: string, op: string, value: string}} Condition */

/** @type {Record<string, string>} */
const OPERATOR_LABELS = { eq: "is", ne: "is not", lt: "is less than", lte: "is at most", gt: "is more than", gte: "is at least", between: "is from … to", in: "is one of", like: "matches (% is any text)", is_null: "is empty" };
const OPERATORS = Object.keys(OPERATOR_LABELS);
const INPUT_TYPES = { integer: "number", number: "number", date: "date", time: "time", boolean: "select" };

/** @param {string} type */
function operatorsFor(type) {
  if (type === "json") return ["is_null"];
  if (["boolean", "array", "bytes"].includes(type)) return ["eq", "ne", "in", "is_null"];
  return ["text", "other"].includes(type) ? OPERATORS : OPERATORS.filter((op) => op !== "like");
}

/** Parses the conditions in the URL. @param {URLSearchParams} params @returns {Condition[]} */
function parseFilters(params) {
  try {
    const found = JSON.parse(params.get("filters") ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one?.field === "string").map(({ field, op = "eq", value = "" }) => ({ field, op: String(op), value: String(value) })) : [];
  } catch {
    return [];
  }
}

/** Converts the conditions to the format of the API. @param {URLSearchParams} params @param {any[]} fields */
export function filtersForApi(params, fields) {
  /** @type {Record<string, Record<string, any>>} */
  const found = {};
  for (const { field, op, value } of parseFilters(params)) {
    if (fields.length && !fields.some((one) => one.name === field)) continue;
    found[field] = { ...found[field], [op]: op === "in" || op === "between" ? splitList(value) : op === "is_null" ? value !== "false" : value };
  }
  return found;
}

/** Splits a comma-separated list. Values that contain a comma are quoted. @param {string} text */
export function splitList(text) {
  return [...text.matchAll(/\s*(?:"((?:[^"]|"")*)"|([^,]*))\s*(?:,|$)/g)].map((one) => (one[1] !== undefined ? one[1].replaceAll('""', '"') : one[2].trim())).filter((one, n, all) => one !== "" || n < all.length - 1);
}

/** @param {any[]} fields */
export function filterEditor(fields) {
  const rows = signal(parseFilters(query.peek()));
  let writtenFilters = query.peek().get("filters") ?? "";
  effect(() => {
    // Show the filters of the URL after Back or Forward.
    const filters = query.value.get("filters") ?? "";
    if (filters !== writtenFilters) untracked(() => (rows.value = parseFilters(query.peek())));
    writtenFilters = filters;
  });
  const writeToUrl = () => {
    writtenFilters = rows.peek().length ? JSON.stringify(rows.peek()) : "";
    setQuery({ filters: writtenFilters }, { replace: true });
  };
  /** @param {number} n @param {Partial<Condition> | null} change @param {boolean} [rerender] whether to render the rows again */
  const updateCondition = (n, change, rerender = true) => {
    const next = rows.peek().flatMap((one, at) => (at === n ? (change === null ? [] : [{ ...one, ...change }]) : [one]));
    if (rerender) rows.value = next;
    else rows.peek().splice(0, rows.peek().length, ...next);
    writeToUrl();
  };
  const add = () => {
    rows.value = [...rows.peek(), { field: fields[0].name, op: operatorsFor(fields[0].type)[0], value: "" }];
    writeToUrl();
  };
  return h(
    "fieldset",
    { class: "stack tight" },
    h("legend", { class: "hint" }, () => (rows.value.length ? "Rows that match all filters" : "Rows: all")),
    () => rows.value.map((one, n) => conditionRow(one, n, fields, updateCondition)),
    h("div", null, h("button", { type: "button", class: "small", on: { click: add } }, icon("plus"), "Add a filter")),
  );
}

/** @param {Condition} one @param {number} n @param {any[]} fields @param {(n: number, change: Partial<Condition> | null, rerender?: boolean) => void} updateCondition */
function conditionRow(one, n, fields, updateCondition) {
  const field = fields.find((known) => known.name === one.field) ?? fields[0];
  const allowed = operatorsFor(field.type);
  const valueOf = (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.target).value;
  const fieldSelect = h("select", { "aria-label": `Field of filter ${n + 1}`, on: { change: (/** @type {Event} */ event) => updateCondition(n, { field: valueOf(event), op: "", value: "" }) } }, fields.map((known) => h("option", { value: known.name, selected: known.name === one.field }, known.name)));
  const op = allowed.includes(one.op) ? one.op : allowed[0];
  if (op !== one.op) one.op = op;
  const opSelect = h("select", { "aria-label": `Operator of filter ${n + 1}`, on: { change: (/** @type {Event} */ event) => updateCondition(n, { op: valueOf(event), value: "" }) } }, allowed.map((known) => h("option", { value: known, selected: known === op }, OPERATOR_LABELS[known])));
  return h("div", { class: "row filter-row" }, fieldSelect, opSelect, valueInput(one, n, field, op, (value) => updateCondition(n, { value }, false)), h("button", { type: "button", class: "plain icon-only small", "aria-label": `Remove filter ${n + 1}`, on: { click: () => updateCondition(n, null) } }, icon("close")));
}

/** @param {Condition} one @param {number} n @param {any} field @param {string} op @param {(value: string) => void} change */
function valueInput(one, n, field, op, change) {
  const label = `Value of filter ${n + 1}`;
  const onInput = (/** @type {Event} */ event) => change(/** @type {HTMLInputElement} */ (event.target).value);
  /** @param {string[][]} all */
  const select = (all) => h("select", { "aria-label": label, on: { change: onInput } }, all.map(([value, caption]) => h("option", { value, selected: one.value === value }, caption)));
  if (op === "is_null") return select([["true", "yes"], ["false", "no"]]);
  if (op === "between") return rangeInputs(one, n, field, change);
  if (op === "in") return h("input", { type: "text", "aria-label": label, value: one.value, placeholder: "admin, editor", on: { input: onInput } });
  if (field.allowed.length) return select([["", "Choose …"], ...field.allowed.map((/** @type {string} */ value) => [value, value])]);
  if (field.type === "boolean") return select([["", "Choose …"], ["true", "true"], ["false", "false"]]);
  const type = op === "like" ? "text" : (/** @type {any} */ (INPUT_TYPES)[field.type] ?? "text");
  return h("input", { type, step: type === "number" ? "any" : null, "aria-label": label, value: one.value, placeholder: field.type === "timestamp" ? "2026-11-15 12:00" : null, on: { input: onInput } });
}

/** @param {Condition} one @param {number} n @param {any} field @param {(value: string) => void} change */
function rangeInputs(one, n, field, change) {
  const type = /** @type {any} */ (INPUT_TYPES)[field.type] ?? "text";
  const values = splitList(one.value);
  const onInput = () => change(ends.map((input) => `"${input.value.replaceAll('"', '""')}"`).join(","));
  const ends = ["From", "To"].map((label, at) => /** @type {HTMLInputElement} */ (h("input", { type, step: type === "number" ? "any" : null, "aria-label": `${label} value of filter ${n + 1}`, value: values[at] ?? "", on: { input: onInput } })));
  return h("span", { class: "row" }, ends[0], "to", ends[1]);
}
