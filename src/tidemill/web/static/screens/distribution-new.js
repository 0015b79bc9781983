// @ts-check
/** The screen for a new distribution: a dataset, and its inputs as a pasted table or a file. */
import { api, newIdempotencyKey } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatNumber, pluralize, truncate } from "../core/format.js";
import { cellText } from "../core/json.js";
import { remoteData } from "../core/remote-data.js";
import { href, navigate, query, queryParam, setQuery } from "../core/router.js";
import { computed, effect, signal } from "../core/signal.js";
import { parseTable } from "../core/table-parser.js";
import { dropZone } from "../ui/drop-zone.js";
import { icon } from "../ui/icons.js";
import { emptyState, errorNotice, loadingNotice, validationNotice } from "../ui/notices.js";

const PREVIEW_ROWS = 8;
const FORMATS = ["csv", "ndjson", "json", "xlsx", "parquet"];
/** The pasted text, kept while the user visits another screen. */
const pastedText = signal("");

export function screen() {
  const [dataset, format, reuse, days, policy] = ["dataset", "format", "reuse", "days", "policy"].map(queryParam);
  const datasets = remoteData(async (signal) => (await api.get("/v1/datasets", {}, signal)).datasets);
  const limits = remoteData((signal) => api.get("/v1/limits", {}, signal));
  const chosen = computed(() => datasets.data.value?.find((/** @type {any} */ one) => one.name === dataset.value) ?? null);
  const parsed = computed(() => {
    try {
      return { inputs: parseTable(pastedText.value), problem: "" };
    } catch (error) {
      return { inputs: [], problem: /** @type {Error} */ (error).message };
    }
  });
  effect(() => {
    const all = datasets.data.value;
    if (all?.length === 1 && !dataset.value) setQuery({ dataset: all[0].name }, { replace: true });
  });
  /** @param {string} name */
  const change = (name) => (/** @type {Event} */ event) => setQuery({ [name]: /** @type {HTMLInputElement} */ (event.target).value }, { replace: true });
  /** @param {string} label @param {string} name @param {() => string[][]} all @param {() => string} now */
  const select = (label, name, all, now) => h("label", { class: "field" }, label, h("select", { on: { change: change(name) } }, () => all().map(([value, caption]) => h("option", { value, selected: now() === value }, caption))));

  const datasetCard = h(
    "div",
    { class: "card stack" },
    h("h2", null, "Dataset and options"),
    h(
      "div",
      { class: "row layout-words" },
      select("Dataset", "dataset", () => [["", "Choose …"], ...(datasets.data.value ?? []).map((/** @type {any} */ one) => [one.name, one.name])], () => dataset.value),
      select("Format", "format", () => [["", chosen.value ? `default: ${chosen.value.format}` : "default"], ...FORMATS.map((one) => [one, one])], () => format.value),
      select("Existing files", "reuse", () => [["", "default"], ["true", "reuse if the input's date is old enough"], ["false", "regenerate all"]], () => reuse.value),
      h("label", { class: "field", hidden: () => reuse.value !== "true" }, "Age of the date, in days", h("input", { type: "number", min: "0", value: () => days.value, placeholder: "default", on: { change: change("days") } })),
      select("When an input fails", "policy", () => [["", "fail the distribution"], ["continue", "continue with the others"]], () => policy.value),
    ),
    () => (chosen.value ? fieldList(chosen.value) : null),
  );
  const area = h("textarea", { rows: "7", spellcheck: "false", "aria-label": "Inputs", placeholder: () => sampleInput(chosen.value), value: () => pastedText.value, on: { input: (/** @type {Event} */ event) => (pastedText.value = /** @type {HTMLTextAreaElement} */ (event.target).value) } });
  const inputsCard = h(
    "div",
    { class: "card stack" },
    h("h2", null, "Inputs"),
    h("p", { class: "hint" }, () => `Paste a table from a spreadsheet, CSV with a header, a JSON list, or one JSON object per line; or drop such a file.${limits.data.value ? ` At most ${formatNumber(limits.data.value.max_distribution_inputs)} inputs.` : ""}`),
    area,
    dropZone({ label: "File with inputs", text: "or drop a file with inputs here", isSmall: true, accept: ".csv,.tsv,.txt,.json,.ndjson,.jsonl", onFile: async (file) => (pastedText.value = await file.text()) }),
    () => (parsed.value.problem ? h("p", { class: "fault", role: "alert" }, `Cannot read the inputs: ${parsed.value.problem}`) : null),
    () => (parsed.value.inputs.length ? inputTable(parsed.value.inputs, chosen.value) : null),
  );
  const buildRequest = () => {
    const reuseOptions = reuse.value ? { reuse: { enabled: reuse.value === "true", ...(days.value ? { days: Number(days.value) } : {}) } } : {};
    return { dataset: dataset.value, inputs: parsed.value.inputs.map((one) => convertInput(one, chosen.value)), ...reuseOptions, ...(format.value ? { format: format.value } : {}), ...(policy.value ? { policy: { mode: policy.value } } : {}) };
  };
  const isNone = computed(() => datasets.data.value?.length === 0);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/distributions") }, "Distributions"), " / new"),
    h("h1", null, "New distribution"),
    () => (datasets.error.value ? errorNotice(datasets.error.value, datasets.reload) : null),
    () => (datasets.data.value === null && !datasets.error.value ? loadingNotice() : null),
    () => (isNone.value ? noDatasets() : null),
    h("div", { class: "stack wide", hidden: () => datasets.data.value === null || isNone.value }, datasetCard, inputsCard, submitSection(buildRequest, () => (!dataset.value ? "Choose a dataset" : parsed.value.inputs.length === 0 ? "Add at least one input" : null), () => parsed.value.inputs.length)),
  );
}

/** @param {() => any} buildRequest @param {() => string | null} disabledReason null if the form can be submitted @param {() => number} inputCount */
function submitSection(buildRequest, disabledReason, inputCount) {
  const error = signal(/** @type {Error | null} */ (null));
  const isBusy = signal(false);
  let [key, keyedRequest] = [newIdempotencyKey(), ""];
  const submit = async () => {
    error.value = null;
    isBusy.value = true;
    try {
      const body = buildRequest();
      const request = JSON.stringify([body, String(query.peek())]);
      if (request !== keyedRequest) [key, keyedRequest] = [newIdempotencyKey(), request];
      const made = await api.post("/v1/distributions", body, { headers: { "idempotency-key": key } });
      pastedText.value = "";
      await navigate(`/distributions/${made.key}`);
    } catch (problem) {
      error.value = /** @type {Error} */ (problem);
    } finally {
      isBusy.value = false;
    }
  };
  return h("div", { class: "stack" }, () => (error.value ? validationNotice(error.value, null) : null), h("div", { class: "row between" }, h("span", { class: "hint" }, () => disabledReason() ?? ""), h("button", { type: "button", class: "main-act", disabled: () => disabledReason() !== null || isBusy.value, on: { click: submit } }, icon("play"), () => `Generate ${pluralize(inputCount(), "file")}`)));
}

/** Converts table text to the type of each field. Values that do not match are left for the service to reject. @param {Record<string, any>} input @param {any} dataset */
function convertInput(input, dataset) {
  const types = new Map((dataset?.fields ?? []).map((/** @type {any} */ one) => [one.name, one.type]));
  return Object.fromEntries(Object.entries(input).map(([name, value]) => [name, convertValue(value, types.get(name))]));
}

/** @param {any} value @param {string | undefined} type */
function convertValue(value, type) {
  if (typeof value !== "string") return value;
  if (type === "integer" && /^-?\d{1,15}$/.test(value)) return Number(value);
  if (type === "boolean" && /^(true|false)$/i.test(value)) return value.toLowerCase() === "true";
  return value;
}

/** @param {any} dataset */
function fieldList(dataset) {
  return h("p", { class: "hint" }, "Fields of an input: ", dataset.fields.map((/** @type {any} */ one, /** @type {number} */ n) => [n ? ", " : "", h("code", null, one.name), ` (${one.type}${one.required ? "" : ", optional"})`]), dataset.date_field ? ["; ", h("code", null, dataset.date_field), " decides whether a file can be reused"] : "; files are always regenerated");
}

/** @param {any} dataset */
function sampleInput(dataset) {
  const values = { text: "ABC", integer: "7", boolean: "true", date: "20240202", yyyymmdd: "20240202" };
  const fields = dataset?.fields ?? [{ name: "index_key", type: "text" }];
  return `${fields.map((/** @type {any} */ one) => one.name).join(",")}\n${fields.map((/** @type {any} */ one) => /** @type {any} */ (values)[one.type]).join(",")}`;
}

/** @param {Array<Record<string, any>>} inputs @param {any} dataset */
function inputTable(inputs, dataset) {
  const known = new Set((dataset?.fields ?? []).map((/** @type {any} */ one) => one.name));
  const names = [...new Set(inputs.slice(0, 100).flatMap((one) => Object.keys(one)))];
  const lacking = (dataset?.fields ?? []).filter((/** @type {any} */ one) => one.required && !names.some((name) => normalizeName(name) === normalizeName(one.name)));
  const isKnown = (/** @type {string} */ name) => !dataset || [...known].some((one) => normalizeName(String(one)) === normalizeName(name));
  return h(
    "div",
    { class: "stack tight" },
    h("p", { class: "hint", role: "status" }, `${pluralize(inputs.length, "input")}${inputs.length > PREVIEW_ROWS ? `, first ${PREVIEW_ROWS} shown:` : ":"}`),
    h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Parsed inputs" }, h("table", null, h("thead", null, h("tr", null, names.map((name) => h("th", { scope: "col", class: isKnown(name) ? null : "wrong" }, name, isKnown(name) ? null : " (unknown field)")))), h("tbody", null, inputs.slice(0, PREVIEW_ROWS).map((one) => h("tr", null, names.map((name) => h("td", null, truncate(cellText(one[name]), 60)))))))),
    lacking.length ? h("p", { class: "fault" }, `Missing required fields: ${lacking.map((/** @type {any} */ one) => one.name).join(", ")}`) : null,
  );
}

/** Field names may be snake case or camel case. @param {string} name */
function normalizeName(name) {
  return name.replaceAll("_", "").toLowerCase();
}

function noDatasets() {
  return emptyState({
    title: "No datasets",
    text: "Datasets are declared in tidemill.toml or with a Python function. Ask an administrator to declare one.",
    commands: [["In tidemill.toml", '[datasets.prices]\nquery = "SELECT member, price FROM prices WHERE index_key = %(index_key)s AND day = %(day)s"\nfields = { index_key = "text", day = "date" }\ndate_field = "day"\nread = ["user", "admin"]']],
  });
}
