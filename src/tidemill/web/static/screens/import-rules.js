// @ts-check
/** Rules of an import for all rows: values for every row, computed columns, and rows to skip. */
import { h, keyedList } from "../core/dom.js";
import { truncate } from "../core/format.js";
import { query } from "../core/router.js";
import { computed, signal } from "../core/signal.js";
import { rulesFromUrl, setRules } from "./import-draft.js";

const SHOWN_ROWS = 10;
const BARE_NAME = /^[\p{L}_][\p{L}\p{N}_]*$/u;
const KEYWORDS = new Set(["and", "or", "not", "in", "is", "empty", "contains", "starts", "ends", "with", "true", "false"]);
const NUMBER = /^-?\d+(\.\d+)?$/;
/** @type {Array<[operator: string, label: string]>} */
const OPERATORS = [["=", "is"], ["!=", "is not"], ["is empty", "is empty"], ["is not empty", "is not empty"], ["contains", "contains"], ["starts with", "starts with"], ["<", "is less than"], [">", "is greater than"]];
const EXAMPLES = ["concat(first, ' ', last)", "lower(trim(email))", "price * quantity", "coalesce(phone, mobile)", "split_part(name, ',', 1)", "if(country = 'DE', 'EU', 'other')"];
/** @typedef {import("../core/signal.js").Signal<any>} Preview the latest preview */
/** @typedef {{constants: Record<string, string>, computed: Record<string, string>, skip: string[]}} Rules */

/** A name of a column in a rule; in quotes if it is not a single word. @param {string} name */
export function quoteName(name) {
  return BARE_NAME.test(name) && !KEYWORDS.has(name.toLowerCase()) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** The condition of a column. @param {string} column @param {string} operator @param {string} value */
export function makeCondition(column, operator, value) {
  if (operator.endsWith("empty")) return `${quoteName(column)} ${operator}`;
  const isNumber = ["<", ">"].includes(operator) && NUMBER.test(value);
  return `${quoteName(column)} ${operator} ${isNumber ? value : `'${value.replaceAll("'", "''")}'`}`;
}

/** @param {Preview} preview */
export function rulesCard(preview) {
  const rules = computed(() => rulesFromUrl(preview.value, query.value));
  const nothing = { fields: [], columns: [], constants: {}, computed: {}, skip: [], forced_fields: [], forced_skip: [], rows: [] };
  const found = () => preview.value ?? nothing;
  const before = preview.peek() ?? nothing; // without a subscription: the step would be rendered again, and lose the focus
  const isUsed = rules.peek().skip.length + Object.keys({ ...before.constants, ...before.computed }).length + before.skip.length > 0;
  const change = (/** @type {Partial<Rules>} */ parts) => setRules(preview.peek(), { ...rules.peek(), ...parts });
  return h(
    "details",
    { class: "card", open: isUsed },
    h("summary", null, "Rules for all rows: set values, compute columns, skip rows"),
    h("div", { class: "stack" }, () => forcedList(found()), constantsPart(rules, found, change), computedPart(rules, found, change), skipPart(rules, found, change), () => rulesPreview(found())),
  );
}

/** What the table's configuration sets. @param {any} preview */
function forcedList(preview) {
  const all = { ...preview.constants, ...preview.computed };
  const fixed = preview.forced_fields.filter((/** @type {string} */ name) => name in all);
  if (fixed.length + preview.forced_skip.length === 0) return null;
  const lines = [...fixed.map((/** @type {string} */ name) => `${name} is ${name in preview.constants ? `"${preview.constants[name]}"` : all[name]}`), ...preview.forced_skip.map((/** @type {string} */ text) => `Rows are skipped where ${text}`)];
  return h("div", { class: "notice", data: { tone: "plain" } }, h("p", null, `Set for every import into ${preview.resource_type}:`), h("ul", null, lines.map((line) => h("li", null, line))));
}

/**
 * A list of rules with a button to remove each one, and the form that adds one.
 * @param {string} title @param {string} hint @param {() => Array<{key: string, text: string}>} lines @param {(key: string) => void} remove @param {HTMLElement} form
 */
function rulesPart(title, hint, lines, remove, form) {
  const first = () => /** @type {HTMLElement} */ (form.querySelector("select, input")).focus(); // the button disappears
  const line = (/** @type {import("../core/signal.js").Signal<{key: string, text: string}>} */ one) =>
    h("li", { class: "row" }, h("span", { class: "mono" }, () => one.value.text), h("button", { type: "button", class: "small", "aria-label": `Remove ${one.peek().text}`, on: { click: () => [remove(one.peek().key), first()] } }, "Remove"));
  return h("fieldset", null, h("legend", null, h("h3", null, title)), h("p", { class: "hint" }, hint), keyedList(h("ul", { "aria-label": title }), lines, (one) => `${one.key} ${one.text}`, line), form);
}

/** A form that stays on the page. @param {string} label @param {() => boolean} add true if the rule was added @param {any[]} content */
function addForm(label, add, ...content) {
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    if (add()) form.querySelectorAll("input").forEach((one) => (one.value = ""));
    /** @type {HTMLElement} */ (form.querySelector("select, input")).focus();
  };
  return h("form", { class: "row rules", "aria-label": label, on: { submit } }, content, h("button", { type: "submit", class: "small" }, "Add"));
}

/** @param {string} label @param {() => string[]} names @param {import("../core/signal.js").Signal<string>} chosen */
function nameSelect(label, names, chosen) {
  const listed = computed(() => JSON.stringify(names()));
  return h("label", { class: "field" }, label, h("select", { on: { change: (/** @type {Event} */ event) => (chosen.value = /** @type {HTMLSelectElement} */ (event.target).value) } }, () => [h("option", { value: "", selected: chosen.value === "" }, "Choose …"), JSON.parse(listed.value).map((/** @type {string} */ name) => h("option", { value: name, selected: chosen.value === name }, name))]));
}

/** @param {string} label @param {import("../core/signal.js").Signal<string>} text @param {string} placeholder @param {string} size */
function textInput(label, text, placeholder, size) {
  return h("label", { class: "field" }, label, h("input", { type: "text", size, placeholder, spellcheck: "false", autocomplete: "off", on: { input: (/** @type {Event} */ event) => (text.value = /** @type {HTMLInputElement} */ (event.target).value) } }));
}

/** The fields that the user can set. @param {any} preview @returns {string[]} */
function openFields(preview) {
  return preview.fields.map((/** @type {any} */ one) => one.name).filter((/** @type {string} */ name) => !preview.forced_fields.includes(name));
}

/** @param {Record<string, string>} rules @param {string} name */
function without(rules, name) {
  return Object.fromEntries(Object.entries(rules).filter(([other]) => other !== name));
}

/** @typedef {import("../core/signal.js").Signal<Rules>} RulesSignal */
/** @typedef {(parts: Partial<Rules>) => void} Change */

/** @param {RulesSignal} rules @param {() => any} preview @param {Change} change */
function constantsPart(rules, preview, change) {
  const [field, value] = [signal(""), signal("")];
  const add = () => {
    if (!field.peek() || !value.peek().trim()) return false;
    change({ constants: { ...rules.peek().constants, [field.peek()]: value.peek() }, computed: without(rules.peek().computed, field.peek()) });
    field.value = value.value = "";
    return true;
  };
  const form = addForm("Add a value for every row", add, nameSelect("Field to set", () => openFields(preview()), field), textInput("Value of every row", value, "webshop", "20"));
  const lines = () => Object.entries(rules.value.constants).map(([key, text]) => ({ key, text: `${key} is "${text}"` }));
  return rulesPart("Values for every row", "The field gets this value in all rows. Updates reach only rows that already have it.", lines, (key) => change({ constants: without(rules.peek().constants, key) }), form);
}

/** @param {RulesSignal} rules @param {() => any} preview @param {Change} change */
function computedPart(rules, preview, change) {
  const [field, expression] = [signal(""), signal("")];
  const add = () => {
    if (!field.peek() || !expression.peek().trim()) return false;
    change({ computed: { ...rules.peek().computed, [field.peek()]: expression.peek().trim() }, constants: without(rules.peek().constants, field.peek()) });
    field.value = expression.value = "";
    return true;
  };
  const form = addForm("Add a computed column", add, nameSelect("Field to compute", () => openFields(preview()), field), textInput("Expression", expression, EXAMPLES[0] ?? "", "36"));
  const lines = () => Object.entries(rules.value.computed).map(([key, text]) => ({ key, text: `${key} = ${text}` }));
  return rulesPart("Computed columns", `Use the columns of the file, such as ${EXAMPLES.join(" · ")}. Write other names in double quotes, and texts in single quotes.`, lines, (key) => change({ computed: without(rules.peek().computed, key) }), form);
}

/** @param {RulesSignal} rules @param {() => any} preview @param {Change} change */
function skipPart(rules, preview, change) {
  const [column, operator, value, typed] = [signal(""), signal("="), signal(""), signal("")];
  const addCondition = (/** @type {string} */ text) => change({ skip: [...new Set([...rules.peek().skip, text])] });
  const add = () => {
    if (!column.peek()) return false;
    addCondition(makeCondition(column.peek(), operator.peek(), value.peek()));
    column.value = value.value = "";
    return true;
  };
  const addTyped = () => {
    if (!typed.peek().trim()) return false;
    addCondition(typed.peek().trim());
    typed.value = "";
    return true;
  };
  const operators = h("label", { class: "field" }, "Condition", h("select", { on: { change: (/** @type {Event} */ event) => (operator.value = /** @type {HTMLSelectElement} */ (event.target).value) } }, OPERATORS.map(([name, label]) => h("option", { value: name }, label))));
  const valueField = h("div", { hidden: () => operator.value.endsWith("empty") }, textInput("Value to skip", value, "deleted", "20"));
  const form = h("div", { class: "stack" }, addForm("Add a rule to skip rows", add, nameSelect("Column to check", () => preview().columns, column), operators, valueField), addForm("Add a condition", addTyped, textInput("or a condition", typed, "status = 'deleted' and credit < 10", "36")));
  const lines = () => rules.value.skip.map((text) => ({ key: text, text }));
  return rulesPart("Skip rows", "Rows that match one of these conditions are not imported.", lines, (key) => change({ skip: rules.peek().skip.filter((one) => one !== key) }), form);
}

/** The computed values of the first rows, and which of them are skipped. @param {any} preview */
function rulesPreview(preview) {
  const names = Object.keys(preview.computed);
  const rows = preview.rows.slice(0, SHOWN_ROWS);
  if (!names.length && !preview.rows.some((/** @type {any} */ row) => row.skipped)) return null;
  const skipped = preview.rows.filter((/** @type {any} */ row) => row.skipped).length;
  const cells = (/** @type {any} */ row) => names.map((name) => h("td", { data: { label: name } }, row.skipped ? "–" : truncate(row.computed[name] ?? "", 60)));
  const line = (/** @type {any} */ row) => h("tr", null, h("th", { scope: "row", class: "right muted" }, String(row.row)), cells(row), h("td", { class: "muted", data: { label: "Skipped" } }, row.skipped ?? ""));
  return h(
    "div",
    { class: "stack" },
    h("p", { class: "hint", role: "status" }, `${skipped} of the first ${preview.rows.length} rows would be skipped.`),
    h("div", { class: "table-box" }, h("table", { class: "cards", "aria-label": "First rows with these rules" }, h("thead", null, h("tr", null, ["Row", ...names, "Skipped"].map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, rows.map(line)))),
  );
}
