// @ts-check
/** A new distribution: a dataset, and its inputs as a table that is pasted or dropped. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, counted, cut } from "../core/format.js";
import { cellText } from "../core/json.js";
import { load } from "../core/load.js";
import { go, href, query, setQuery, word } from "../core/router.js";
import { computed, effect, signal } from "../core/signal.js";
import { readTable } from "../core/table.js";
import { dropZone } from "../ui/drop.js";
import { empty, failure, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { refusal } from "../ui/refusal.js";
import { newKey } from "./import-draft.js";

const SHOWN = 8;
const FORMATS = ["csv", "ndjson", "json", "xlsx", "parquet"];
/** What was pasted, while somebody looks elsewhere and comes back. */
const text = signal("");

export function screen() {
  const [dataset, format, reuse, days, policy] = ["dataset", "format", "reuse", "days", "policy"].map(word);
  const found = load(async (signal) => (await api.get("/v1/datasets", {}, signal)).datasets);
  const limits = load((signal) => api.get("/v1/limits", {}, signal));
  const chosen = computed(() => found.data.value?.find((/** @type {any} */ one) => one.name === dataset.value) ?? null);
  const read = computed(() => {
    try {
      return { inputs: readTable(text.value), fault: "" };
    } catch (error) {
      return { inputs: [], fault: /** @type {Error} */ (error).message };
    }
  });
  effect(() => {
    const all = found.data.value;
    if (all?.length === 1 && !dataset.value) setQuery({ dataset: all[0].name }, { replace: true });
  });
  /** @param {string} name */
  const change = (name) => (/** @type {Event} */ event) => setQuery({ [name]: /** @type {HTMLInputElement} */ (event.target).value }, { replace: true });
  /** @param {string} label @param {string} name @param {() => string[][]} all @param {() => string} now */
  const select = (label, name, all, now) => h("label", { class: "field" }, label, h("select", { on: { change: change(name) } }, () => all().map(([value, says]) => h("option", { value, selected: now() === value }, says))));

  const what = h(
    "div",
    { class: "card stack" },
    h("h2", null, "What"),
    h(
      "div",
      { class: "row layout-words" },
      select("Dataset", "dataset", () => [["", "Choose …"], ...(found.data.value ?? []).map((/** @type {any} */ one) => [one.name, one.name])], () => dataset.value),
      select("Format", "format", () => [["", chosen.value ? `as declared: ${chosen.value.format}` : "as declared"], ...FORMATS.map((one) => [one, one])], () => format.value),
      select("Files that were made before", "reuse", () => [["", "as the service is set"], ["true", "are used again, if old enough"], ["false", "are made anew"]], () => reuse.value),
      h("label", { class: "field", hidden: () => reuse.value !== "true" }, "Days until an input counts as final", h("input", { type: "number", min: "0", value: () => days.value, placeholder: "as set", on: { change: change("days") } })),
      select("When an input fails", "policy", () => [["", "all of it fails"], ["continue", "others go on"]], () => policy.value),
    ),
    () => (chosen.value ? fieldList(chosen.value) : null),
  );
  const area = h("textarea", { rows: "7", spellcheck: "false", "aria-label": "Inputs", placeholder: () => sampleOf(chosen.value), value: () => text.value, on: { input: (/** @type {Event} */ event) => (text.value = /** @type {HTMLTextAreaElement} */ (event.target).value) } });
  const inputs = h(
    "div",
    { class: "card stack" },
    h("h2", null, "Inputs"),
    h("p", { class: "hint" }, () => `Paste a table from a spreadsheet, CSV with a header, a JSON list or an object a line; or drop a file of these${limits.data.value ? `. ${count(limits.data.value.max_distribution_inputs)} at most` : ""}.`),
    area,
    dropZone({ label: "File of inputs", says: "or drop a file of inputs here", isSmall: true, accept: ".csv,.tsv,.txt,.json,.ndjson,.jsonl", onFile: async (file) => (text.value = await file.text()) }),
    () => (read.value.fault ? h("p", { class: "fault", role: "alert" }, `This cannot be read: ${read.value.fault}`) : null),
    () => (read.value.inputs.length ? inputTable(read.value.inputs, chosen.value) : null),
  );
  const asked = () => {
    const said = reuse.value ? { reuse: { enabled: reuse.value === "true", ...(days.value ? { days: Number(days.value) } : {}) } } : {};
    return { dataset: dataset.value, inputs: read.value.inputs.map((one) => typed(one, chosen.value)), ...said, ...(format.value ? { format: format.value } : {}), ...(policy.value ? { policy: { mode: policy.value } } : {}) };
  };
  const isNone = computed(() => found.data.value?.length === 0);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/distributions") }, "Distributions"), " / new"),
    h("h1", null, "New distribution"),
    () => (found.error.value ? failure(found.error.value, found.again) : null),
    () => (found.data.value === null && !found.error.value ? waiting() : null),
    () => (isNone.value ? nothing() : null),
    h("div", { class: "stack wide", hidden: () => found.data.value === null || isNone.value }, what, inputs, submitPart(asked, () => (!dataset.value ? "choose a dataset" : read.value.inputs.length === 0 ? "there are no inputs" : null), () => read.value.inputs.length)),
  );
}

/** @param {() => any} asked @param {() => string | null} why not @param {() => number} n */
function submitPart(asked, why, n) {
  const error = signal(/** @type {Error | null} */ (null));
  const isBusy = signal(false);
  let [key, meant] = [newKey(), ""];
  const go_ = async () => {
    error.value = null;
    isBusy.value = true;
    try {
      const body = asked();
      const meaning = JSON.stringify([body, String(query.peek())]);
      if (meaning !== meant) [key, meant] = [newKey(), meaning];
      const made = await api.post("/v1/distributions", body, { headers: { "idempotency-key": key } });
      text.value = "";
      await go(`/distributions/${made.key}`);
    } catch (problem) {
      error.value = /** @type {Error} */ (problem);
    } finally {
      isBusy.value = false;
    }
  };
  return h("div", { class: "stack" }, () => (error.value ? refusal(error.value, null) : null), h("div", { class: "row between" }, h("span", { class: "hint" }, () => (why() ? `Not yet: ${why()}` : "")), h("button", { type: "button", class: "main-act", disabled: () => why() !== null || isBusy.value, on: { click: go_ } }, icon("play"), () => `Ask for ${counted(n(), "file")}`)));
}

/** Text of a table as the type that its field has; what does not fit is the service's to refuse. @param {Record<string, any>} input @param {any} dataset */
export function typed(input, dataset) {
  const types = new Map((dataset?.fields ?? []).map((/** @type {any} */ one) => [one.name, one.type]));
  return Object.fromEntries(Object.entries(input).map(([name, value]) => [name, convert(value, types.get(name))]));
}

/** @param {any} value @param {string | undefined} type */
function convert(value, type) {
  if (typeof value !== "string") return value;
  if (type === "integer" && /^-?\d{1,15}$/.test(value)) return Number(value);
  if (type === "boolean" && /^(true|false)$/i.test(value)) return value.toLowerCase() === "true";
  return value;
}

/** @param {any} dataset */
function fieldList(dataset) {
  return h("p", { class: "hint" }, "An input has: ", dataset.fields.map((/** @type {any} */ one, /** @type {number} */ n) => [n ? ", " : "", h("code", null, one.name), ` (${one.type}${one.required ? "" : ", if you like"})`]), dataset.date_field ? ["; ", h("code", null, dataset.date_field), " decides whether a file is used again"] : "; files are made anew each time");
}

/** @param {any} dataset */
function sampleOf(dataset) {
  const values = { text: "ABC", integer: "7", boolean: "true", date: "20240202", yyyymmdd: "20240202" };
  const fields = dataset?.fields ?? [{ name: "index_key", type: "text" }];
  return `${fields.map((/** @type {any} */ one) => one.name).join(",")}\n${fields.map((/** @type {any} */ one) => /** @type {any} */ (values)[one.type]).join(",")}`;
}

/** @param {Array<Record<string, any>>} inputs @param {any} dataset */
function inputTable(inputs, dataset) {
  const known = new Set((dataset?.fields ?? []).map((/** @type {any} */ one) => one.name));
  const names = [...new Set(inputs.slice(0, 100).flatMap((one) => Object.keys(one)))];
  const lacking = (dataset?.fields ?? []).filter((/** @type {any} */ one) => one.required && !names.some((name) => plain(name) === plain(one.name)));
  const isKnown = (/** @type {string} */ name) => !dataset || [...known].some((one) => plain(String(one)) === plain(name));
  return h(
    "div",
    { class: "stack tight" },
    h("p", { class: "hint", role: "status" }, `${counted(inputs.length, "input")}${inputs.length > SHOWN ? `, the first ${SHOWN}:` : ":"}`),
    h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Inputs that were read" }, h("table", null, h("thead", null, h("tr", null, names.map((name) => h("th", { scope: "col", class: isKnown(name) ? null : "wrong" }, name, isKnown(name) ? null : " (no such field)")))), h("tbody", null, inputs.slice(0, SHOWN).map((one) => h("tr", null, names.map((name) => h("td", null, cut(cellText(one[name]), 60)))))))),
    lacking.length ? h("p", { class: "fault" }, `Missing: ${lacking.map((/** @type {any} */ one) => one.name).join(", ")}`) : null,
  );
}

/** Fields may be in either spelling. @param {string} name */
function plain(name) {
  return name.replaceAll("_", "").toLowerCase();
}

function nothing() {
  return empty({
    title: "There are no datasets",
    says: "What can be asked for is declared in tidemill.toml, or with a function in Python. Whoever runs this service can declare one.",
    recipes: [["In tidemill.toml", '[datasets.prices]\nquery = "SELECT member, price FROM prices WHERE index_key = %(index_key)s AND day = %(day)s"\nfields = { index_key = "text", day = "date" }\ndate_field = "day"\nread = ["user", "admin"]']],
  });
}
