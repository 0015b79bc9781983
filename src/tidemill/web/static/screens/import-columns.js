// @ts-check
/** The columns step of an import: the mapping of columns to fields, and the import rules. */
import { h, keyedList } from "../core/dom.js";
import { formatNumber, truncate } from "../core/format.js";
import { cellText } from "../core/json.js";
import { query, queryParam, setQuery } from "../core/router.js";
import { computed, effect, signal } from "../core/signal.js";
import { icon } from "../ui/icons.js";
import { formatsFromUrl, mappingFromUrl, setFormat, setLookup, setMapping, setTranslation, translationsFromUrl } from "./import-draft.js";

const SAMPLE_COUNT = 3;
const REJECTED_SHOWN_MAX = 10; // values of each field
/** @typedef {import("../core/signal.js").Signal<any>} Preview the latest preview */

/** Keeps each row while its column exists, so that a new preview does not move the focus. @param {import("../core/signal.js").Signal<any>} preview */
export function columnsTable(preview) {
  const shown = signal(preview.peek());
  effect(() => {
    if (preview.value !== null) shown.value = preview.value;
  });
  /** @type {Map<string, HTMLElement>} */
  const choices = new Map();
  /** @param {string} column @param {string} field */
  const map = (column, field) => {
    choices.get(column)?.focus(); // the clicked button disappears with the next preview
    setMapping({ ...mappingFromUrl(query.peek()), [column]: field });
  };
  const lines = () => [...shown.value.columns.map((/** @type {string} */ name) => ({ name, isMissing: false })), ...shown.value.missing.map((/** @type {string} */ name) => ({ name, isMissing: true }))];
  const body = keyedList(h("tbody"), lines, (one) => `${one.isMissing} ${one.name}`, (one) => (one.peek().isMissing ? missingFieldRow : columnRow)(one.peek().name, shown, map, choices));
  return h(
    "div",
    { class: "stack" },
    () => problemsNotice(shown.value),
    h(
      "div",
      { class: "table-box" },
      h(
        "table",
        { class: "cards", "aria-label": "Columns" },
        h("thead", null, h("tr", null, ["Column in the file", "Sample", "Field", "Format", "Match"].map((label) => h("th", { scope: "col" }, label)))),
        body,
      ),
    ),
  );
}

/** @param {any} preview */
function problemsNotice(preview) {
  if (preview.problems.length === 0) return h("p", { class: "notice", role: "status", data: { tone: "plain" } }, icon("check"), `The column mapping for ${preview.resource_type} is complete.`);
  return h("div", { class: "notice", role: "alert" }, h("ul", { class: "told" }, preview.problems.map((/** @type {string} */ one) => h("li", null, one))));
}

/** @param {string} column @param {Preview} preview @param {(column: string, field: string) => void} map @param {Map<string, HTMLElement>} choices */
function columnRow(column, preview, map, choices) {
  const stateText = computed(() => JSON.stringify(columnState(column, preview.value)));
  const state = computed(() => /** @type {ReturnType<typeof columnState>} */ (JSON.parse(stateText.value)));
  const choose = h(
    "select",
    { "aria-label": `Field of column ${column}`, "aria-invalid": () => (state.value.isUnknown ? "true" : null), on: { change: (/** @type {Event} */ event) => map(column, /** @type {HTMLSelectElement} */ (event.target).value) } },
    () => [
      state.value.isUnknown ? h("option", { value: "", selected: true, disabled: true }, "Choose …") : null,
      h("option", { value: "", selected: !state.value.field && !state.value.isUnknown }, "– leave out –"),
      state.value.fields.map(([name, caption]) => h("option", { value: name, selected: name === state.value.field }, caption)),
    ],
  );
  choices.set(column, choose);
  const useSuggestion = () => {
    const { proposal, suggestion } = state.peek();
    if (proposal === null) return map(column, suggestion ?? "");
    choices.get(column)?.focus();
    return setLookup(proposal.field, proposal.by, { mapping: { ...mappingFromUrl(query.peek()), [column]: proposal.field } });
  };
  const suggestionText = () => (state.value.proposal ? `Use ${state.value.proposal.field}, found by ${state.value.proposal.by}` : `Use ${state.value.suggestion}`);
  const suggestionButton = h("button", { type: "button", class: "small", hidden: () => state.value.suggestion === null && state.value.proposal === null, on: { click: useSuggestion } }, suggestionText);
  const leaveOutButton = h("button", { type: "button", class: "small", hidden: () => !state.value.isUnknown, on: { click: () => map(column, "") } }, "Leave out");
  return h("tr", null, h("th", { scope: "row" }, column), h("td", { class: "muted", data: { label: "Sample" } }, () => state.value.sample), h("td", { data: { label: "Field" } }, h("div", { class: "stack" }, choose, lookupChoice(column, () => state.value))), h("td", { data: { label: "Format" } }, formatChoice(column, () => state.value)), h("td", null, h("div", { class: "row" }, () => matchLabel(column, state.value), suggestionButton, leaveOutButton)));
}

/** Everything that the row of a column shows. @param {string} column @param {any} preview */
function columnState(column, preview) {
  const isUnknown = preview.unknown.includes(column);
  const taken = Object.values(preview.mapping);
  const names = preview.fields.map((/** @type {any} */ one) => one.name);
  return {
    field: /** @type {string} */ (preview.mapping[column] ?? ""),
    fields: /** @type {Array<[name: string, label: string]>} */ (preview.fields.filter((/** @type {any} */ one) => !one.closed).map((/** @type {any} */ one) => [one.name, `${one.name}${one.required ? " *" : ""} (${one.type})`])),
    isUnknown,
    isUserChoice: column in mappingFromUrl(query.peek()),
    isRemembered: column in (preview.remembered?.request.mapping ?? {}),
    suggestion: isUnknown ? closestName(column, names.filter((/** @type {string} */ name) => !taken.includes(name))) : null,
    sample: sampleValues(preview.rows, column),
    proposal: /** @type {{field: string, by: string} | null} */ ((preview.lookup_proposals ?? []).find((/** @type {any} */ one) => one.column === column) ?? null),
    lookup: lookupState(column, preview),
    format: formatState(column, preview),
  };
}

/** How the rows are found that a column refers to; null if its field is no reference. @param {string} column @param {any} preview */
function lookupState(column, preview) {
  const found = (preview.lookups ?? []).find((/** @type {any} */ one) => one.field === preview.mapping[column]);
  if (!found) return null;
  const unique = found.unique.map((/** @type {string[]} */ one) => one.join(","));
  const others = found.columns.filter((/** @type {string} */ one) => !unique.includes(one));
  const by = found.by.join(",");
  return {
    field: /** @type {string} */ (found.field),
    table: /** @type {string} */ (found.table),
    by,
    create: /** @type {boolean} */ (found.create),
    mayCreate: found.creatable.some((/** @type {string[]} */ one) => one.join(",") === by),
    options: /** @type {Array<[by: string, label: string]>} */ ([...unique.map((/** @type {string} */ one) => [one, one.replaceAll(",", ", ")]), ...others.map((/** @type {string} */ one) => [one, `${one} (not unique)`])]),
    counts: /** @type {Record<string, number> | null} */ (found.values),
  };
}

/** By which columns the rows are found that a column refers to. @param {string} column @param {() => ReturnType<typeof columnState>} state */
function lookupChoice(column, state) {
  const choose = (/** @type {Event} */ event) => {
    const { lookup } = state();
    if (lookup) setLookup(lookup.field, /** @type {HTMLSelectElement} */ (event.target).value);
  };
  const create = (/** @type {Event} */ event) => {
    const { lookup } = state();
    if (lookup) setLookup(lookup.field, lookup.by, { create: /** @type {HTMLInputElement} */ (event.target).checked });
  };
  return h(
    "div",
    { class: "stack", hidden: () => state().lookup === null },
    h(
      "label",
      { class: "row" },
      "Find by",
      h("select", { "aria-label": `Find rows of column ${column} by`, on: { change: choose } }, () => {
        const { by, options } = state().lookup ?? { by: "", options: [] };
        const isListed = by === "" || options.some(([value]) => value === by);
        return [h("option", { value: "", selected: by === "" }, "key"), options.map(([value, label]) => h("option", { value, selected: value === by }, label)), isListed ? null : h("option", { value: by, selected: true }, by.replaceAll(",", ", "))];
      }),
    ),
    h("label", { class: "choice", hidden: () => !state().lookup?.mayCreate && !state().lookup?.create }, h("input", { type: "checkbox", "aria-label": `Create missing rows of column ${column}`, checked: () => state().lookup?.create ?? false, on: { change: create } }), () => `Create missing rows in ${state().lookup?.table ?? ""}`),
    h("span", { class: "hint", hidden: () => !state().lookup?.counts }, () => lookupCounts(state().lookup)),
  );
}

/** @param {ReturnType<typeof lookupState>} lookup */
function lookupCounts(lookup) {
  if (!lookup?.counts) return "";
  const { found, missing, ambiguous } = lookup.counts;
  const parts = [`${formatNumber(found)} found`, ...(missing ? [`${formatNumber(missing)} ${lookup.create ? "to create" : "missing"}`] : []), ...(ambiguous ? [`${formatNumber(ambiguous)} ambiguous`] : [])];
  return `${parts.join(", ")} in the first rows`;
}

/** The detected or chosen format of a column, and the formats to choose from. @param {string} column @param {any} preview */
function formatState(column, preview) {
  const field = preview.fields.find((/** @type {any} */ one) => one.name === preview.mapping[column]);
  const finding = (preview.formats ?? []).find((/** @type {any} */ one) => one.column === column) ?? null;
  const readings = finding?.ambiguous ? [finding, ...finding.alternatives] : [];
  const known = (preview.known_formats ?? []).filter((/** @type {any} */ one) => field && one.types.includes(field.type) && !readings.some((/** @type {any} */ other) => other.format === one.name));
  return {
    field: /** @type {string | null} */ (known.length || readings.length ? field.name : null),
    chosen: field ? (formatsFromUrl(query.value)[field.name] ?? "") : "",
    detected: /** @type {string | null} */ (finding?.format ?? null),
    isAmbiguous: readings.length > 0,
    examples: exampleText(finding?.examples ?? []),
    options: /** @type {Array<[name: string, label: string]>} */ ([...readings.map((/** @type {any} */ one) => [one.format, `${one.format}: ${exampleText(one.examples.slice(0, 1))}`]), ...known.map((/** @type {any} */ one) => [one.name, `${one.name}: ${exampleText([one.example])}`])]),
  };
}

/** @param {Array<{before: string, after: string | null}>} examples */
function exampleText(examples) {
  return examples.map(({ before, after }) => `${truncate(before, 30)} → ${after === null ? "empty" : truncate(after, 30)}`).join(" · ");
}

/** The format of the values of a column, with values before and after it. @param {string} column @param {() => ReturnType<typeof columnState>} state */
function formatChoice(column, state) {
  const change = (/** @type {Event} */ event) => {
    const { field } = state().format;
    if (field !== null) setFormat(field, /** @type {HTMLSelectElement} */ (event.target).value || null);
  };
  return h(
    "div",
    { class: "stack format-choice", hidden: () => state().format.field === null },
    h("select", { "aria-label": `Format of column ${column}`, "aria-invalid": () => (state().format.isAmbiguous ? "true" : null), on: { change } }, () => {
      const { chosen, detected, isAmbiguous, options } = state().format;
      const automatic = isAmbiguous ? "Choose …" : chosen === "" && detected !== null ? `detected: ${detected}` : "automatic";
      const isListed = chosen === "" || options.some(([name]) => name === chosen);
      return [h("option", { value: "", selected: chosen === "", disabled: isAmbiguous }, automatic), options.map(([name, label]) => h("option", { value: name, selected: name === chosen }, label)), isListed ? null : h("option", { value: chosen, selected: true }, chosen)];
    }),
    h("span", { class: "hint", hidden: () => state().format.isAmbiguous || state().format.examples === "" }, () => state().format.examples),
    h("span", { class: "status", data: { tone: "warn" }, hidden: () => !state().format.isAmbiguous }, icon("alert"), "can be read in two ways"),
  );
}

/** @param {string} column @param {ReturnType<typeof columnState>} now */
function matchLabel(column, { field, isUserChoice, isRemembered, isUnknown }) {
  if (isUnknown) return h("span", { class: "status", data: { tone: "warn" } }, icon("alert"), "unknown field");
  if (!field) return h("span", { class: "muted" }, isUserChoice ? "left out" : isRemembered ? "left out as before" : "not imported");
  if (isUserChoice) return h("span", null, "your choice");
  if (isRemembered && field !== column) return h("span", { class: "status", data: { tone: "ok" } }, icon("check"), "as before");
  return field === column ? h("span", { class: "status", data: { tone: "ok" } }, icon("check"), "same name") : h("span", { class: "status", data: { tone: "run" } }, icon("help"), "detected");
}

/** The row of a required field without a column. @param {string} field @param {Preview} preview @param {(column: string, field: string) => void} map */
function missingFieldRow(field, preview, map) {
  const columns = computed(() => JSON.stringify(preview.value.columns));
  return h(
    "tr",
    { class: "missing" },
    h("td", null, h("select", { "aria-label": `Column for ${field}`, "aria-invalid": "true", on: { change: (/** @type {Event} */ event) => map(/** @type {HTMLSelectElement} */ (event.target).value, field) } }, h("option", { value: "", selected: true, disabled: true }, "Choose a column …"), () => JSON.parse(columns.value).map((/** @type {string} */ one) => h("option", { value: one }, one)))),
    h("td", { class: "muted" }, "–"),
    h("th", { scope: "row" }, field),
    h("td", { class: "muted" }, "–"),
    h("td", null, h("span", { class: "status", data: { tone: "bad" } }, icon("cross"), "required")),
  );
}

/** The invalid values of each field, and those that the user replaced. @param {import("../core/signal.js").Signal<any>} preview */
export function translationTable(preview) {
  /** @typedef {{field: string, text: string, rows: number | null, reason: string}} RejectedText */
  const lines = computed(() => {
    const found = preview.value ?? { rejected_values: {} };
    /** @type {Map<string, RejectedText>} */
    const all = new Map();
    for (const [field, texts] of Object.entries(currentTranslations(preview.value, query.value))) {
      for (const text of Object.keys(texts)) all.set(`${field} ${text}`, { field, text, rows: null, reason: texts[text] === text ? "not replaced" : "replaced" });
    }
    for (const [field, values] of Object.entries(found.rejected_values)) {
      for (const one of values.slice(0, REJECTED_SHOWN_MAX)) all.set(`${field} ${one.value.trim()}`, { field, text: one.value.trim(), rows: one.rows, reason: one.reason });
    }
    return [...all.values()].toSorted((a, b) => a.field.localeCompare(b.field) || a.text.localeCompare(b.text));
  });
  /** @param {import("../core/signal.js").Signal<RejectedText>} line */
  const row = (line) => {
    const { field, text } = line.peek();
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, field),
      h("td", { data: { label: "Value in the file" } }, text),
      h("td", { class: "right", data: { label: "Rows" } }, () => (line.value.rows === null ? "–" : formatNumber(line.value.rows))),
      h("td", { data: { label: "Problem" } }, () => line.value.reason),
      h("td", { data: { label: "Import as" } }, replacementInput(field, text, preview)),
    );
  };
  return h(
    "div",
    { class: "card stack", hidden: () => lines.value.length === 0 },
    h("h2", null, "Values that are not valid"),
    h("p", { class: "hint" }, "These values are from the first rows of the file. Enter a replacement for a value. Rows whose value you do not replace are reported as errors."),
    h(
      "div",
      { class: "table-box" },
      h("table", { class: "cards", "aria-label": "Values that are not valid" }, h("thead", null, h("tr", null, ["Field", "Value in the file", "Rows", "Problem", "Import as"].map((label) => h("th", { scope: "col" }, label)))), keyedList(h("tbody"), () => lines.value, (line) => `${line.field} ${line.text}`, row)),
    ),
  );
}

/** The translations of the user, and else those of the remembered mapping. @param {any} preview @param {URLSearchParams} urlParams @returns {Record<string, Record<string, string>>} */
function currentTranslations(preview, urlParams) {
  return { ...preview?.remembered?.request.translations, ...translationsFromUrl(urlParams) };
}

/** A list of the allowed values of an enumeration, or a text input. @param {string} field @param {string} text @param {Preview} preview */
function replacementInput(field, text, preview) {
  const label = `Import instead of ${text} in ${field}`;
  const chosen = () => currentTranslations(preview.value, query.value)[field]?.[text] ?? "";
  // A remembered translation is undone by one to the same text.
  const change = (/** @type {Event} */ event) => setTranslation(field, text, /** @type {HTMLInputElement} */ (event.target).value.trim() || (text in (preview.peek()?.remembered?.request.translations?.[field] ?? {}) ? text : null));
  const allowed = computed(() => JSON.stringify(preview.value?.fields.find((/** @type {any} */ one) => one.name === field)?.allowed ?? []));
  const values = JSON.parse(allowed.peek());
  if (values.length === 0) return h("input", { type: "text", size: "16", "aria-label": label, placeholder: "unchanged", value: chosen, on: { change } });
  return h("select", { "aria-label": label, on: { change } }, () => [h("option", { value: "", selected: chosen() === "" }, "– unchanged –"), values.map((/** @type {string} */ one) => h("option", { value: one, selected: chosen() === one }, one))]);
}

/** @param {any[]} rows @param {string} column */
function sampleValues(rows, column) {
  const seen = new Set(rows.map((row) => (row.input !== null && typeof row.input === "object" ? cellText(row.input[column]) : "")));
  seen.delete("");
  return truncate([...seen].slice(0, SAMPLE_COUNT).join("\u00a0· "), 60) || "–";
}

/** The most similar name, or null if none is similar enough. @param {string} name @param {string[]} others */
export function closestName(name, others) {
  const scored = others.map((other) => ({ other, score: similarity(name, other) })).toSorted((a, b) => b.score - a.score);
  return scored[0] && scored[0].score >= 0.5 ? scored[0].other : null;
}

/** The similarity of two names from 0 to 1, by shared letter pairs. @param {string} a @param {string} b */
function similarity(a, b) {
  const [one, two] = [letterPairs(a), letterPairs(b)];
  if (!one.size || !two.size) return 0;
  return (2 * [...one].filter((pair) => two.has(pair)).length) / (one.size + two.size);
}

/** @param {string} name */
function letterPairs(name) {
  const letters = name.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
  return new Set(Array.from({ length: Math.max(0, letters.length - 1) }, (_, n) => letters.slice(n, n + 2)));
}

/** The form with the import rules. @param {import("../core/signal.js").Signal<any>} preview */
export function importOptions(preview) {
  const [mode, duplicates, policy, failed, share] = ["mode", "duplicates", "policy", "max_failed", "max_percent"].map(queryParam);
  /** @param {string} name */
  const change = (name) => (/** @type {Event} */ event) => setQuery({ [name]: /** @type {HTMLInputElement} */ (event.target).value }, { replace: true });
  /** @param {string} name */
  const toggle = (name) => (/** @type {Event} */ event) => setQuery({ [name]: /** @type {HTMLInputElement} */ (event.target).checked ? "true" : null }, { replace: true });
  const undo = () => (query.value.has("undo") ? query.value.get("undo") === "true" : Boolean(preview.value?.undo));
  const setUndo = (/** @type {Event} */ event) => setQuery({ undo: String(/** @type {HTMLInputElement} */ (event.target).checked) }, { replace: true });
  /** @param {string} name @param {string} label @param {import("../core/signal.js").Signal<string>} now @param {Array<[string, string]>} all */
  const select = (name, label, now, all) => h("label", { class: "field" }, label, h("select", { on: { change: change(name) } }, () => all.map(([value, caption]) => h("option", { value, selected: now.value === value }, caption))));
  return h(
    "div",
    { class: "card stack" },
    h("h2", null, "Rules"),
    h(
      "div",
      { class: "row rules" },
      select("mode", "Rows whose key already exists", mode, [["", "report an error (insert)"], ["upsert", "update (upsert)"]]),
      select("duplicates", "Rows with the same key in the file", duplicates, [["", "use the first, report errors for the others"], ["first", "use the first, skip the others"], ["last", "use the last, skip the others"]]),
      select("policy", "When rows fail", policy, [["", "continue with the others"], ["tolerate", "stop if too many fail"], ["fail_fast", "stop at the first failure"]]),
      h("label", { class: "field", hidden: () => policy.value !== "tolerate" }, "Maximum failed rows, in percent", h("input", { type: "number", min: "0", max: "100", step: "any", disabled: () => failed.value !== "", value: () => share.value || "5", on: { change: change("max_percent") } })),
      h("label", { class: "field", hidden: () => policy.value !== "tolerate" }, "or maximum number of failed rows", h("input", { type: "number", min: "0", value: () => failed.value, on: { change: change("max_failed") } })),
    ),
    h("label", { class: "choice" }, h("input", { type: "checkbox", checked: undo, on: { change: setUndo } }), "Keep the data to undo this import"),
    h("label", { class: "choice" }, h("input", { type: "checkbox", checked: () => query.value.has("keep_empty"), on: { change: toggle("keep_empty") } }), "Keep empty text as a value (for files exported from Tidemill)"),
    h("label", { class: "choice" }, h("input", { type: "checkbox", checked: () => query.value.has("spreadsheet_safe"), on: { change: toggle("spreadsheet_safe") } }), "Remove apostrophes that escape formulas (for files exported for spreadsheets)"),
  );
}
