// @ts-check
/** The preview step of an import: the detected layout, which users can override, and the first rows. */
import { h } from "../core/dom.js";
import { truncate } from "../core/format.js";
import { cellText } from "../core/json.js";
import { queryParam, setQuery } from "../core/router.js";

const SHOWN_ROWS = 10;
const VALUE_LABELS = { ",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", "\n": "LF", "\r\n": "CRLF", "\r": "CR", '"': 'double (")', "'": "single (')", "": "none", true: "yes", false: "no" };

/** @type {Array<{name: string, label: string, options: Array<[string, string]>, of: string[]}>} */
const LAYOUT_FIELDS = [
  { name: "format", label: "Format", of: [], options: ["csv", "tsv", "ndjson", "json", "xlsx", "parquet"].map((one) => [one, one]) },
  { name: "compression", label: "Compression", of: ["csv", "tsv", "ndjson", "json"], options: ["none", "gzip", "zstd", "zip"].map((one) => [one, one]) },
  { name: "encoding", label: "Encoding", of: ["csv", "tsv", "ndjson", "json"], options: ["utf-8", "utf-16", "cp1252", "latin-1", "cp1250", "cp1251", "iso8859-15", "mac-roman", "shift_jis", "gb18030", "big5", "euc_kr"].map((one) => [one, one]) },
  { name: "delimiter", label: "Delimiter", of: ["csv", "tsv"], options: [["comma", "comma"], ["semicolon", "semicolon"], ["tab", "tab"], ["pipe", "pipe"], ["space", "space"], ["blanks", "blanks"]] },
  { name: "quote", label: "Quote", of: ["csv", "tsv"], options: [['"', 'double (")'], ["'", "single (')"], ["none", "none"]] },
  { name: "line_end", label: "Line end", of: ["csv", "tsv"], options: [["lf", "LF"], ["crlf", "CRLF"], ["cr", "CR"]] },
  { name: "header", label: "Header row", of: ["csv", "tsv", "xlsx"], options: [["true", "yes"], ["false", "no"]] },
];

/** @type {Array<[string, string]>} */
const NUMBER_FIELDS = [["skip_lines", "Lines before the table"], ["header_rows", "Header rows"], ["footer_lines", "Lines after the table"], ["table", "Table number"]];
const CERTAIN_CONFIDENCE_MIN = 0.6;
const USUAL_FINDINGS = ["delimiter", "line_end", "header", "encoding"];

/** The findings that a user may want to check: all except the usual ones of a clean file. @param {any} preview */
export function findingList(preview) {
  const shown = (preview.findings ?? []).filter((/** @type {any} */ one) => one.confidence < CERTAIN_CONFIDENCE_MIN || !USUAL_FINDINGS.includes(one.option));
  if (!shown.length) return null;
  return h("ul", { class: "hint", "aria-label": "Detected options" }, shown.map((/** @type {any} */ one) => h("li", null, `${one.option}: ${String(one.value)} (${Math.round(one.confidence * 100)}%). ${one.reason}.`)));
}

/** @param {() => Record<string, any>} layout */
export function layoutForm(layout) {
  const isOf = (/** @type {{of: string[]}} */ one) => one.of.length === 0 || one.of.includes(layout().format);
  return h("div", { class: "row layout-words" }, LAYOUT_FIELDS.map((one) => h("label", { class: "field", hidden: () => !isOf(one) }, one.label, layoutSelect(one, layout))), NUMBER_FIELDS.map(([name, label]) => numberField(name, label, layout)), sheetField(layout));
}

/** @param {typeof LAYOUT_FIELDS[number]} one @param {() => Record<string, any>} layout */
function layoutSelect({ name, options }, layout) {
  const chosen = queryParam(name);
  const detectedLabel = () => {
    const value = layout()[name];
    return value === undefined || value === null ? "automatic" : `detected: ${/** @type {any} */ (VALUE_LABELS)[value] ?? value}`;
  };
  return h("select", { on: { change: (/** @type {Event} */ event) => setQuery({ [name]: /** @type {HTMLSelectElement} */ (event.target).value }, { replace: true }) } }, () => [
    h("option", { value: "", selected: chosen.value === "" }, chosen.value === "" ? detectedLabel() : "automatic"),
    options.map(([value, label]) => h("option", { value, selected: chosen.value === value }, label)),
  ]);
}

/** @param {string} name @param {string} label @param {() => Record<string, any>} layout */
function numberField(name, label, layout) {
  const number = queryParam(name);
  return h("label", { class: "field", hidden: () => !["csv", "tsv"].includes(layout().format) }, label, h("input", { type: "number", min: "0", size: "6", placeholder: () => (layout()[name] === undefined ? "automatic" : `detected: ${layout()[name]}`), value: () => number.value, on: { change: (/** @type {Event} */ event) => setQuery({ [name]: /** @type {HTMLInputElement} */ (event.target).value.trim() }, { replace: true }) } }));
}

/** @param {() => Record<string, any>} layout */
function sheetField(layout) {
  const sheet = queryParam("sheet");
  return h("label", { class: "field", hidden: () => layout().format !== "xlsx" }, "Sheet name or number", h("input", { type: "text", size: "12", placeholder: () => (layout().sheet ? `detected: ${layout().sheet}` : "the sheet with rows"), value: () => sheet.value, on: { change: (/** @type {Event} */ event) => setQuery({ sheet: /** @type {HTMLInputElement} */ (event.target).value.trim() }, { replace: true }) } }));
}

/** @param {any} preview */
export function previewTable(preview) {
  const rows = preview.rows.slice(0, SHOWN_ROWS);
  const bad = preview.rows.filter((/** @type {any} */ row) => row.errors.length).length;
  const first = preview.rows.length === 1 ? "the first row" : `the first ${preview.rows.length} rows`;
  const skipped = preview.rows.filter((/** @type {any} */ row) => row.skipped).length;
  const verdict = `${skipped ? `${skipped} of the first ${preview.rows.length} rows would be skipped. ` : ""}${bad ? `Errors in ${preview.rows.length === 1 ? first : `${bad} of ${first}`}` : `No errors in ${first}`}. The preview does not compare rows with the table.`;
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "table-box", tabindex: "0", role: "region", "aria-label": "First rows" },
      h(
        "table",
        null,
        h("thead", null, h("tr", null, h("th", { scope: "col", class: "right" }, "Row"), preview.columns.map((/** @type {string} */ name) => h("th", { scope: "col" }, name, fieldLabel(preview, name))), Object.keys(preview.computed).map((name) => h("th", { scope: "col" }, name, h("span", { class: "to-field" }, " computed"))), skipped ? h("th", { scope: "col" }, "Skipped") : null, bad ? h("th", { scope: "col" }, "Errors") : null)),
        h("tbody", null, rows.map((/** @type {any} */ row) => previewRow(row, preview, bad > 0, skipped > 0))),
      ),
    ),
    h("p", { class: "hint" }, verdict),
  );
}

/** @param {any} preview @param {string} column */
function fieldLabel(preview, column) {
  const field = preview.mapping[column];
  return field === column ? null : h("span", { class: "to-field" }, field ? ` → ${field}` : " → not mapped");
}

/** @param {any} row @param {any} preview @param {boolean} hasBad @param {boolean} hasSkipped */
function previewRow(row, preview, hasBad, hasSkipped) {
  const wrong = new Set(row.errors.map((/** @type {any} */ one) => one.field));
  const cells = row.input !== null && typeof row.input === "object" ? preview.columns.map((/** @type {string} */ name) => h("td", { class: wrong.has(preview.mapping[name] ?? name) || wrong.has(name) ? "wrong nowrap" : "nowrap" }, truncate(cellText(row.input[name]), 60))) : h("td", { class: "wrong mono", colspan: String(preview.columns.length || 1) }, truncate(cellText(row.input), 200));
  const computedCells = Object.keys(preview.computed).map((name) => h("td", { class: wrong.has(name) ? "wrong nowrap" : "nowrap" }, truncate(row.computed[name] ?? "", 60)));
  const errorText = row.errors.map((/** @type {any} */ one) => `${one.field ? `${one.field}: ` : ""}${one.reason}`).join("; ");
  return h("tr", null, h("td", { class: "right muted" }, String(row.row)), cells, computedCells, hasSkipped ? h("td", { class: "muted" }, row.skipped ?? "") : null, hasBad ? h("td", { class: "fault" }, errorText) : null);
}
