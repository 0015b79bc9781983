// @ts-check
/** A new export: which rows of what, as which file. All of it stands in the address. */
import { api, me, send } from "../core/api.js";
import { h } from "../core/dom.js";
import { load } from "../core/load.js";
import { wholeAddress } from "../core/place.js";
import { go, href, query, setQuery, word, words } from "../core/router.js";
import { computed, effect, signal, untracked } from "../core/signal.js";
import { empty, failure, recipe, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { refusal } from "../ui/refusal.js";
import { toast } from "../ui/toast.js";
import { filterRows, filtersOf } from "./export-filters.js";
import { newKey } from "./import-draft.js";
import { save } from "./import-acts.js";

const FORMATS = [["csv", "CSV"], ["ndjson", "NDJSON, an object a line"], ["json", "JSON, a list"], ["xlsx", "Excel workbook (xlsx)"], ["parquet", "Parquet"]];
const PACKINGS = [["none", "none"], ["gzip", "gzip"], ["zstd", "zstd"]];
const PACKED = ["xlsx", "parquet"]; // compressed by themselves
const RUNS_TEXT = ["csv", "xlsx"];

export function screen() {
  const [resource, format, compression, order] = ["resource", "format", "compression", "order"].map(word);
  const fields = words("fields");
  const found = load(async (signal) => (await api.get("/v1/resources", {}, signal)).resources.filter((/** @type {any} */ one) => one.may_read));
  const chosen = computed(() => found.data.value?.find((/** @type {any} */ one) => one.name === resource.value) ?? null);
  const readable = computed(() => (chosen.value?.fields ?? []).filter((/** @type {any} */ one) => one.readable));
  const kind = () => format.value || "csv";
  const asked = () => {
    const said = { resource: resource.value, format: kind(), compression: compression.value || "none", fields: fields.value, filters: filtersOf(query.value, readable.value), order: order.value ? [order.value] : [], spreadsheet_safe: RUNS_TEXT.includes(kind()) && isSafe(query.value) };
    return Object.fromEntries(Object.entries(said).filter(([name, value]) => !(name === "compression" && value === "none") && value !== false && !(Array.isArray(value) && value.length === 0) && !(name === "filters" && Object.keys(/** @type {any} */ (value)).length === 0)));
  };
  effect(() => {
    const all = found.data.value;
    if (all?.length === 1 && !resource.value) setQuery({ resource: all[0].name }, { replace: true });
  });

  /** @param {string} label @param {string} name @param {string[][]} all @param {() => string} now */
  const select = (label, name, all, now) => h("label", { class: "field" }, label, h("select", { on: { change: (/** @type {Event} */ event) => setQuery({ [name]: /** @type {HTMLSelectElement} */ (event.target).value, ...(name === "format" ? { compression: null } : {}) }, { replace: true }) } }, () => all.map(([value, says]) => h("option", { value, selected: now() === value }, says))));
  const what = h(
    "div",
    { class: "card stack" },
    h("h2", null, "What"),
    h("div", { class: "row layout-words" }, resourceSelect(() => found.data.value ?? [], resource), me.peek()?.role === "admin" ? tableField(() => found.data.value ?? [], resource) : null),
    () => (readable.value.length ? untracked(() => columnChoice(readable.peek(), fields)) : null),
    () => (readable.value.length ? untracked(() => filterRows(readable.peek())) : null),
  );
  const how = h(
    "div",
    { class: "card stack" },
    h("h2", null, "As"),
    h("div", { class: "row layout-words" }, select("Format", "format", FORMATS, kind), h("div", { hidden: () => PACKED.includes(kind()) }, select("Compression", "compression", PACKINGS, () => compression.value || "none")), () => orderSelect(readable.value, order)),
    h("label", { class: "choice", hidden: () => !RUNS_TEXT.includes(kind()) }, h("input", { type: "checkbox", checked: () => isSafe(query.value), on: { change: (/** @type {Event} */ event) => setQuery({ spreadsheet_safe: /** @type {HTMLInputElement} */ (event.target).checked ? null : "false" }, { replace: true }) } }), "Make text harmless that a spreadsheet might run: it gets an apostrophe in front"),
  );
  const isNone = computed(() => found.data.value?.length === 0 && me.value?.role !== "admin");
  const curl = () => `curl ${wholeAddress("/v1/exports")} -H "Authorization: Bearer $KEY" --json '${JSON.stringify(asked()).replaceAll("'", "'\\''")}'`;
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/exports") }, "Exports"), " / new"),
    h("h1", null, "New export"),
    () => (found.error.value ? failure(found.error.value, found.again) : null),
    () => (found.data.value === null && !found.error.value ? waiting() : null),
    () => (isNone.value ? nothing() : null),
    h("div", { class: "stack wide", hidden: () => found.data.value === null || isNone.value }, what, how, acts(asked, resource), () => recipe("The same with curl", curl())),
  );
}

/** Unless somebody says otherwise: who takes a file with a browser opens it with a spreadsheet. @param {URLSearchParams} said */
function isSafe(said) {
  return said.get("spreadsheet_safe") !== "false";
}

/** @param {() => any[]} all @param {import("../core/signal.js").Signal<string>} chosen */
function resourceSelect(all, chosen) {
  const choose = (/** @type {Event} */ event) => setQuery({ resource: /** @type {HTMLSelectElement} */ (event.target).value, fields: null, filters: null, order: null }, { replace: true });
  return h("label", { class: "field" }, "Rows of", h("select", { on: { change: choose } }, () => [h("option", { value: "", selected: !all().some((one) => one.name === chosen.value) }, "Choose …"), all().map((one) => h("option", { value: one.name, selected: one.name === chosen.value, disabled: Boolean(one.problem) }, one.name))]));
}

/** Any table, for admins; its columns are not known here. @param {() => any[]} all @param {import("../core/signal.js").Signal<string>} chosen */
function tableField(all, chosen) {
  const isDeclared = () => all().some((one) => one.name === chosen.value);
  return h("label", { class: "field" }, "or of any table or view", h("input", { type: "text", placeholder: "public.users", spellcheck: "false", value: () => (isDeclared() ? "" : chosen.value), on: { change: (/** @type {Event} */ event) => setQuery({ resource: /** @type {HTMLInputElement} */ (event.target).value.trim(), fields: null, filters: null, order: null }, { replace: true }) } }));
}

/** @param {any[]} all @param {import("../core/signal.js").Signal<string[]>} chosen */
function columnChoice(all, chosen) {
  /** @param {string} name @param {boolean} isOn */
  const toggle = (name, isOn) => {
    const now = chosen.peek().length ? chosen.peek() : all.map((one) => one.name);
    const next = isOn ? all.map((one) => one.name).filter((one) => now.includes(one) || one === name) : now.filter((one) => one !== name);
    setQuery({ fields: next.length === all.length ? null : next }, { replace: true });
  };
  const isOn = (/** @type {string} */ name) => chosen.value.length === 0 || chosen.value.includes(name);
  return h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, () => `Columns: ${chosen.value.length || "all"} of ${all.length}`), h("div", { class: "row column-choice" }, all.map((one) => h("label", { class: "choice" }, h("input", { type: "checkbox", checked: () => isOn(one.name), disabled: () => chosen.value.length === 1 && isOn(one.name), on: { change: (/** @type {Event} */ event) => toggle(one.name, /** @type {HTMLInputElement} */ (event.target).checked) } }), one.name))));
}

/** @param {any[]} all @param {import("../core/signal.js").Signal<string>} order */
function orderSelect(all, order) {
  const options = all.filter((one) => one.type !== "json").flatMap((one) => [[one.name, one.name], [`-${one.name}`, `${one.name}, the other way round`]]);
  return h("label", { class: "field" }, "Order", h("select", { on: { change: (/** @type {Event} */ event) => setQuery({ order: /** @type {HTMLSelectElement} */ (event.target).value }, { replace: true }) } }, h("option", { value: "", selected: order.peek() === "" }, "by the natural key"), options.map(([value, says]) => h("option", { value, selected: order.peek() === value }, says))));
}

/** @param {() => any} asked @param {import("../core/signal.js").Signal<string>} resource */
function acts(asked, resource) {
  const error = signal(/** @type {Error | null} */ (null));
  const isBusy = signal(false);
  let [key, meant] = [newKey(), ""];
  /** @param {() => Promise<any>} run */
  const tryIt = async (run) => {
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
  const make = () =>
    tryIt(async () => {
      const meaning = JSON.stringify(asked());
      if (meaning !== meant) [key, meant] = [newKey(), meaning];
      const made = await api.post("/v1/exports", asked(), { headers: { "idempotency-key": key } });
      toast(`${made.key} is being made`, "ok");
      await go("/exports");
    });
  const stream = () =>
    tryIt(async () => {
      // What is wrong is told before the first byte; a download would keep it as a file.
      const stop = new AbortController();
      await send("GET", `/v1/exports${streamQuery(asked())}`, { signal: stop.signal, headers: { accept: "*/*" } });
      stop.abort();
      save(`/v1/exports${streamQuery(asked())}`);
    });
  const cannot = () => isBusy.value || !resource.value;
  return h(
    "div",
    { class: "stack" },
    () => (error.value ? refusal(error.value, null) : null),
    h("div", { class: "row between" }, h("span", { class: "hint" }, "A stream comes at once, and lasts as long as this browser reads. A file is made by a worker, kept for a while, and can be fetched in parts."), h("div", { class: "row" }, h("button", { type: "button", disabled: cannot, on: { click: stream } }, icon("down"), "Stream now"), h("button", { type: "button", class: "main-act", disabled: cannot, on: { click: make } }, icon("box"), "Make a file"))),
  );
}

/** The same words as a query. @param {any} asked */
export function streamQuery(asked) {
  const { filters = {}, fields = [], order = [], ...rest } = asked;
  const found = new URLSearchParams(Object.entries(rest).map(([name, value]) => [name, String(value)]));
  if (fields.length) found.set("fields", fields.join(","));
  if (order.length) found.set("order", order.join(","));
  for (const [field, said] of Object.entries(filters)) for (const [op, value] of Object.entries(/** @type {any} */ (said))) found.set(`filter[${field}][${op}]`, Array.isArray(value) ? value.map(quoted).join(",") : String(value));
  return `?${found}`;
}

/** A value of a list between commas. @param {any} value */
function quoted(value) {
  const text = String(value);
  return /[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function nothing() {
  return empty({
    title: "There is nothing you may export",
    says: "Tables are declared in tidemill.toml, with the roles that may read them. Whoever runs this service can declare one, or export from the command line.",
    recipes: [
      ["In tidemill.toml", '[resources.users]\ntable = "public.users"\nread = ["user", "admin"]'],
      ["From the command line", "tidemill export public.users -o users.csv"],
    ],
  });
}

