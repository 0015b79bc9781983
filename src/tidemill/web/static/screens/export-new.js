// @ts-check
/** The screen for a new export. All its settings are query parameters. */
import { api, currentUser, newIdempotencyKey, sendRequest } from "../core/api.js";
import { h } from "../core/dom.js";
import { remoteData } from "../core/remote-data.js";
import { href, navigate, query, queryList, queryParam, setQuery } from "../core/router.js";
import { computed, effect, signal, untracked } from "../core/signal.js";
import { toAbsoluteUrl } from "../core/url.js";
import { columnPicker } from "../ui/column-picker.js";
import { commandSnippet } from "../ui/copy-button.js";
import { icon } from "../ui/icons.js";
import { emptyState, errorNotice, loadingNotice, validationNotice } from "../ui/notices.js";
import { showToast } from "../ui/toast.js";
import { filterEditor, filtersForApi } from "./export-filters.js";
import { downloadFile } from "./import-actions.js";

const FORMATS = [["csv", "CSV"], ["ndjson", "NDJSON (one object per line)"], ["json", "JSON (list)"], ["xlsx", "Excel workbook (xlsx)"], ["parquet", "Parquet"]];
const COMPRESSIONS = [["none", "none"], ["gzip", "gzip"], ["zstd", "zstd"]];
const COMPRESSED_FORMATS = new Set(["xlsx", "parquet"]); // formats with built-in compression
const SPREADSHEET_FORMATS = new Set(["csv", "xlsx"]);

export function screen() {
  const [resource, format, compression, order] = ["resource", "format", "compression", "order"].map(queryParam);
  const fields = queryList("fields");
  const resources = remoteData(async (signal) => (await api.get("/v1/resources", {}, signal)).resources.filter((/** @type {any} */ one) => one.may_read));
  const chosen = computed(() => resources.data.value?.find((/** @type {any} */ one) => one.name === resource.value) ?? null);
  const readable = computed(() => (chosen.value?.fields ?? []).filter((/** @type {any} */ one) => one.readable));
  const kind = () => format.value || "csv";
  const buildRequest = () => {
    const request = { resource: resource.value, format: kind(), compression: compression.value || "none", fields: fields.value, filters: filtersForApi(query.value, readable.value), order: order.value ? [order.value] : [], spreadsheet_safe: SPREADSHEET_FORMATS.has(kind()) && isSpreadsheetSafe(query.value) };
    return Object.fromEntries(Object.entries(request).filter(([name, value]) => !(name === "compression" && value === "none") && value !== false && !(Array.isArray(value) && value.length === 0) && !(name === "filters" && Object.keys(/** @type {any} */ (value)).length === 0)));
  };
  effect(() => {
    const all = resources.data.value;
    if (all?.length === 1 && !resource.value) setQuery({ resource: all[0].name }, { replace: true });
  });

  /** @param {string} label @param {string} name @param {string[][]} all @param {() => string} now */
  const select = (label, name, all, now) => h("label", { class: "field" }, label, h("select", { on: { change: (/** @type {Event} */ event) => setQuery({ [name]: /** @type {HTMLSelectElement} */ (event.target).value, ...(name === "format" ? { compression: null } : {}) }, { replace: true }) } }, () => all.map(([value, caption]) => h("option", { value, selected: now() === value }, caption))));
  const sourceCard = h(
    "div",
    { class: "card stack" },
    h("h2", null, "Data"),
    h("div", { class: "row layout-words" }, resourceSelect(() => resources.data.value ?? [], resource), currentUser.peek()?.role === "admin" ? tableField(() => resources.data.value ?? [], resource) : null),
    () => (readable.value.length ? untracked(() => columnPicker(readable.peek().map((/** @type {any} */ one) => one.name), fields.peek(), (names) => setQuery({ fields: names.length ? names : null }, { replace: true }))) : null),
    () => (readable.value.length ? untracked(() => filterEditor(readable.peek())) : null),
  );
  const formatCard = h(
    "div",
    { class: "card stack" },
    h("h2", null, "File"),
    h("div", { class: "row layout-words" }, select("Format", "format", FORMATS, kind), h("div", { hidden: () => COMPRESSED_FORMATS.has(kind()) }, select("Compression", "compression", COMPRESSIONS, () => compression.value || "none")), () => orderSelect(readable.value, order)),
    h("label", { class: "choice", hidden: () => !SPREADSHEET_FORMATS.has(kind()) }, h("input", { type: "checkbox", checked: () => isSpreadsheetSafe(query.value), on: { change: (/** @type {Event} */ event) => setQuery({ spreadsheet_safe: /** @type {HTMLInputElement} */ (event.target).checked ? null : "false" }, { replace: true }) } }), "Escape formulas: put an apostrophe before text that a spreadsheet could run"),
  );
  const isNone = computed(() => resources.data.value?.length === 0 && currentUser.value?.role !== "admin");
  const curl = () => `curl ${toAbsoluteUrl("/v1/exports")} -H "Authorization: Bearer $KEY" --json '${JSON.stringify(buildRequest()).replaceAll("'", "'\\''")}'`;
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/exports") }, "Exports"), " / new"),
    h("h1", null, "New export"),
    () => (resources.error.value ? errorNotice(resources.error.value, resources.reload) : null),
    () => (resources.data.value === null && !resources.error.value ? loadingNotice() : null),
    () => (isNone.value ? noResources() : null),
    h("div", { class: "stack wide", hidden: () => resources.data.value === null || isNone.value }, sourceCard, formatCard, actionButtons(buildRequest, resource), () => commandSnippet("The same with curl", curl())),
  );
}

/** On by default, because users who download a file in a browser often open it in a spreadsheet. @param {URLSearchParams} params */
function isSpreadsheetSafe(params) {
  return params.get("spreadsheet_safe") !== "false";
}

/** @param {() => any[]} all @param {import("../core/signal.js").Signal<string>} chosen */
function resourceSelect(all, chosen) {
  const choose = (/** @type {Event} */ event) => setQuery({ resource: /** @type {HTMLSelectElement} */ (event.target).value, fields: null, filters: null, order: null }, { replace: true });
  return h("label", { class: "field" }, "Export from", h("select", { on: { change: choose } }, () => [h("option", { value: "", selected: !all().some((one) => one.name === chosen.value) }, "Choose …"), all().map((one) => h("option", { value: one.name, selected: one.name === chosen.value, disabled: Boolean(one.problem) }, one.name))]));
}

/** Any table, for admins. Its columns are unknown here. @param {() => any[]} all @param {import("../core/signal.js").Signal<string>} chosen */
function tableField(all, chosen) {
  const isDeclared = () => all().some((one) => one.name === chosen.value);
  return h("label", { class: "field" }, "or any table or view", h("input", { type: "text", placeholder: "public.users", spellcheck: "false", value: () => (isDeclared() ? "" : chosen.value), on: { change: (/** @type {Event} */ event) => setQuery({ resource: /** @type {HTMLInputElement} */ (event.target).value.trim(), fields: null, filters: null, order: null }, { replace: true }) } }));
}

/** @param {any[]} all @param {import("../core/signal.js").Signal<string>} order */
function orderSelect(all, order) {
  const options = all.flatMap((one) => (one.type === "json" ? [] : [[one.name, one.name], [`-${one.name}`, `${one.name}, descending`]]));
  return h("label", { class: "field" }, "Order", h("select", { on: { change: (/** @type {Event} */ event) => setQuery({ order: /** @type {HTMLSelectElement} */ (event.target).value }, { replace: true }) } }, h("option", { value: "", selected: order.peek() === "" }, "natural key"), options.map(([value, caption]) => h("option", { value, selected: order.peek() === value }, caption))));
}

/** @param {() => any} buildRequest @param {import("../core/signal.js").Signal<string>} resource */
function actionButtons(buildRequest, resource) {
  const error = signal(/** @type {Error | null} */ (null));
  const isBusy = signal(false);
  let [key, keyedRequest] = [newIdempotencyKey(), ""];
  /** @param {() => Promise<any>} run */
  const withErrors = async (run) => {
    error.value = null;
    isBusy.value = true;
    try {
      await run();
    } catch (problem) {
      error.value = /** @type {Error} */ (problem);
    } finally {
      isBusy.value = false;
    }
  };
  const createFile = () =>
    withErrors(async () => {
      const request = JSON.stringify(buildRequest());
      if (request !== keyedRequest) [key, keyedRequest] = [newIdempotencyKey(), request];
      const made = await api.post("/v1/exports", buildRequest(), { headers: { "idempotency-key": key } });
      showToast(`Export ${made.key} started`, "ok");
      await navigate("/exports");
    });
  const streamFile = () =>
    withErrors(async () => {
      // Errors arrive before the first byte. Request once to show them, as a download would store them as a file.
      const stop = new AbortController();
      await sendRequest("GET", `/v1/exports${streamQuery(buildRequest())}`, { signal: stop.signal, headers: { accept: "*/*" } });
      stop.abort();
      downloadFile(`/v1/exports${streamQuery(buildRequest())}`);
    });
  const isDisabled = () => isBusy.value || !resource.value;
  return h(
    "div",
    { class: "stack" },
    () => (error.value ? validationNotice(error.value, null) : null),
    h("div", { class: "row between" }, h("span", { class: "hint" }, "A stream starts immediately and needs this browser to stay open. A file is generated by a worker, kept until it expires, and can be downloaded in parts."), h("div", { class: "row" }, h("button", { type: "button", disabled: isDisabled, on: { click: streamFile } }, icon("down"), "Stream now"), h("button", { type: "button", class: "main-act", disabled: isDisabled, on: { click: createFile } }, icon("box"), "Create a file"))),
  );
}

/** The request as query parameters. @param {any} request */
export function streamQuery(request) {
  const { filters = {}, fields = [], order = [], ...rest } = request;
  const found = new URLSearchParams(Object.entries(rest).map(([name, value]) => [name, String(value)]));
  if (fields.length) found.set("fields", fields.join(","));
  if (order.length) found.set("order", order.join(","));
  for (const [field, conditions] of Object.entries(filters)) for (const [op, value] of Object.entries(/** @type {any} */ (conditions))) found.set(`filter[${field}][${op}]`, Array.isArray(value) ? value.map(quoteListValue).join(",") : String(value));
  return `?${found}`;
}

/** Quotes a value of a comma-separated list if needed. @param {any} value */
function quoteListValue(value) {
  const text = String(value);
  return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function noResources() {
  return emptyState({
    title: "No tables to export",
    text: "Tables are declared in tidemill.toml with the roles that can read them. Ask an administrator to declare one, or export from the command line.",
    commands: [
      ["In tidemill.toml", '[resources.users]\ntable = "public.users"\nread = ["user", "admin"]'],
      ["From the command line", "tidemill export public.users -o users.csv"],
    ],
  });
}

