// @ts-check
/** Fixes all rows of an import that have one error, with one rule and a preview. */
import { api, isAbortError } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatNumber, pluralize } from "../core/format.js";
import { cellText } from "../core/json.js";
import { pollUntil } from "../core/polling.js";
import { computed, effect, onCleanup, signal, untracked } from "../core/signal.js";
import { showDialog } from "../ui/dialog.js";
import { singleFlight } from "../ui/single-flight.js";
import { reportOperation } from "./operation-text.js";

const PREVIEW_DELAY_MS = 300;
const SAMPLE_ROWS = 200;
const SAMPLE_VALUES_MAX = 20;
/** @type {Array<[string, string]>} */
const RULE_LABELS = [
  ["replace", "Replace text"],
  ["translate", "Replace values"],
  ["split", "Split into two columns"],
  ["format", "Read a date or number format"],
  ["default", "Set a value"],
  ["drop", "Dismiss the rows"],
];
/** The frequent value formats; the API has more. @type {Array<[string, string]>} */
const FORMAT_LABELS = [
  ["DD.MM.YYYY", "DD.MM.YYYY: 31.12.2026"],
  ["DD/MM/YYYY", "DD/MM/YYYY: 31/12/2026"],
  ["DD-MM-YYYY", "DD-MM-YYYY: 31-12-2026"],
  ["MM/DD/YYYY", "MM/DD/YYYY: 12/31/2026"],
  ["YYYY/MM/DD", "YYYY/MM/DD: 2026/12/31"],
  ["DD.MM.YY", "DD.MM.YY: 31.12.26"],
  ["MM/DD/YY", "MM/DD/YY: 12/31/26"],
  ["DD MMM YYYY", "DD MMM YYYY: 31 Dec 2026"],
  ["MMM DD YYYY", "MMM DD YYYY: December 31, 2026"],
  ["excel-date", "Excel serial date: 46387"],
  ["decimal-comma", "Decimal comma: 1.234,56"],
  ["decimal-point", "Decimal point: 1,234.56"],
  ["percent-comma", "Percentage with a decimal comma: 12,5 %"],
  ["percent-point", "Percentage with a decimal point: 12.5 %"],
  ["yes-no", "Yes or no: ja, non, true"],
];

/** @typedef {import("../core/signal.js").Signal<any>} AnySignal */

/**
 * @param {any} job the import @param {string} cause the error code @param {string} title the words of the error
 * @param {() => void} done called after rows were changed
 */
export async function repairRows(job, cause, title, done) {
  const field = cause.slice(0, Math.max(0, cause.lastIndexOf(".")));
  const ownColumn = Object.entries(job.mapping).find(([, target]) => target === field)?.[0];
  const operation = await showDialog(
    `Fix all rows with “${title}”`,
    (close, isLocked) => {
      const column = signal(ownColumn ?? job.columns[0] ?? "");
      const type = signal("replace");
      const fields = signal(/** @type {Record<string, any>} */ ({}));
      const preview = signal(/** @type {any} */ (null));
      const problem = signal("");
      const running = signal(/** @type {any} */ (null));
      const stop = new AbortController();
      onCleanup(() => stop.abort());
      const rule = computed(() => buildRule(type.value, fields.value));
      const body = () => ({ cause, column: type.peek() === "drop" ? null : column.peek(), rule: rule.peek() });
      const sampleRows = signal(/** @type {any[]} */ ([]));
      const samples = computed(() => countValues(sampleRows.value, column.value));
      void fetchSamples(job, cause, stop.signal).then((rows) => (sampleRows.value = rows), () => null);

      let timer = 0;
      let turn = 0;
      effect(() => {
        void column.value;
        const wanted = rule.value;
        window.clearTimeout(timer);
        turn += 1;
        if (wanted === null) {
          preview.value = null;
          problem.value = "";
          return;
        }
        const mine = turn;
        timer = window.setTimeout(async () => {
          try {
            const found = await api.post(`/v1/imports/${job.job_id}/repairs/preview`, body());
            if (mine !== turn) return;
            problem.value = "";
            preview.value = found;
          } catch (error) {
            if (mine !== turn || isAbortError(error)) return;
            preview.value = null;
            problem.value = /** @type {Error} */ (error).message;
          }
        }, PREVIEW_DELAY_MS);
      });
      onCleanup(() => ((turn += 1), window.clearTimeout(timer)));

      const apply = singleFlight(async () => {
        problem.value = "";
        isLocked.value = true;
        try {
          running.value = await api.post(`/v1/imports/${job.job_id}/repairs`, body());
          isLocked.value = false; // the operation continues if the user closes the dialog
          const id = running.peek().id;
          if (running.peek().state === "running") await pollUntil(() => api.get(`/v1/operations/${id}`, {}, stop.signal), (now) => now.state !== "running", { signal: stop.signal, onStep: (now) => (running.value = now) });
          close(running.peek());
        } catch (error) {
          isLocked.value = false;
          if (isAbortError(error)) return;
          running.value = null;
          problem.value = /** @type {Error} */ (error).message;
        }
      });
      const cancel = singleFlight(async () => {
        try {
          await api.post(`/v1/operations/${running.peek().id}/cancel`);
        } catch (error) {
          problem.value = /** @type {Error} */ (error).message;
        }
      });
      const isBusy = () => running.value !== null;
      return [
        h(
          "div",
          { class: "columns", hidden: isBusy },
          selectField("Rule", RULE_LABELS, type.peek(), (value) => ((fields.value = {}), (type.value = value))),
          h("div", { hidden: () => type.value === "drop" }, selectField("Column", job.columns.map((/** @type {string} */ name) => [name, name]), column.peek(), (value) => (column.value = value))),
        ),
        () => {
          const chosen = type.value;
          return isBusy() ? null : untracked(() => ruleFields(chosen, fields, job, column, samples));
        },
        h("div", { class: "repair-preview stack tight", role: "region", "aria-label": "Preview", tabindex: "0", hidden: isBusy }, () => previewContent(preview.value, rule.value, problem.value)),
        h("p", { class: "fault", role: "alert", hidden: () => problem.value === "" }, problem),
        h("div", { class: "stack tight", hidden: () => !isBusy() }, h("p", { role: "status" }, () => (running.value ? `${pluralize(running.value.items, "row")} fixed and requeued so far` : "")), h("progress", { "aria-label": "Progress", max: () => String(preview.value?.rows ?? 1), value: () => String(running.value?.items ?? 0) })),
        h(
          "div",
          { class: "acts" },
          h("button", { type: "button", disabled: isLocked, on: { click: () => close(running.peek()) } }, () => (isBusy() ? "Continue in the background" : "Go back")),
          h("button", { type: "button", class: "danger", hidden: () => !isBusy(), on: { click: cancel } }, "Cancel the rest"),
          h("button", { type: "submit", class: "main-act", hidden: isBusy, disabled: () => isLocked.value || preview.value === null || (type.value !== "drop" && preview.value.changed === 0), on: { click: apply } }, () => applyLabel(preview.value, type.value)),
        ),
      ];
    },
    { isWide: true },
  );
  if (operation === null) return;
  await reportOperation(operation);
  done();
}

/** @param {any} preview @param {string} type */
function applyLabel(preview, type) {
  const verb = type === "drop" ? "Dismiss" : "Fix";
  return preview === null ? `${verb} rows` : `${verb} ${pluralize(preview.rows, "row")}`;
}

/** The rule as in the API; null if it is incomplete. @param {string} type @param {Record<string, any>} fields */
function buildRule(type, fields) {
  switch (type) {
    case "replace":
      return fields.find || fields.whole ? { type, find: fields.find ?? "", replacement: fields.replacement ?? "", whole: Boolean(fields.whole) } : null;
    case "translate": {
      const values = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ""));
      return Object.keys(values).length ? { type, values } : null;
    }
    case "split":
      return fields.separator && fields.first !== fields.second ? { type, separator: fields.separator, into: [fields.first, fields.second] } : null;
    case "format":
      return { type, format: fields.format ?? FORMAT_LABELS[0][0] };
    case "default":
      return fields.value === undefined ? null : { type, value: fields.value };
    default:
      return { type };
  }
}

/** @param {any} job @param {string} cause @param {AbortSignal} stop @returns {Promise<any[]>} */
async function fetchSamples(job, cause, stop) {
  const page = await api.get(`/v1/imports/${job.job_id}/errors`, { error_codes: [cause], include_dismissed: false, page_size: SAMPLE_ROWS }, stop);
  return page.rows;
}

/** The most frequent values of a column. @param {any[]} rows @param {string} column @returns {Array<[string, number]>} */
function countValues(rows, column) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const { input } of rows) {
    const text = input !== null && typeof input === "object" ? cellText(input[column]).trim() : "";
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return [...counts].toSorted((a, b) => b[1] - a[1]).slice(0, SAMPLE_VALUES_MAX);
}

/** @param {string} label @param {Array<[string, string]>} choices @param {string} chosen @param {(value: string) => void} change */
function selectField(label, choices, chosen, change) {
  return h("label", { class: "field" }, label, h("select", { on: { change: (/** @type {Event} */ event) => change(/** @type {HTMLSelectElement} */ (event.target).value) } }, choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
}

/** @param {string} type @param {AnySignal} fields @param {any} job @param {import("../core/signal.js").Signal<string>} column @param {import("../core/signal.js").Signal<Array<[string, number]>>} samples */
function ruleFields(type, fields, job, column, samples) {
  const set = (/** @type {Record<string, any>} */ change) => (fields.value = { ...fields.peek(), ...change });
  /** @param {string} label @param {string} name */
  const textField = (label, name) => h("label", { class: "field" }, label, h("input", { type: "text", value: "", maxlength: "1000", spellcheck: "false", autocomplete: "off", on: { input: (/** @type {Event} */ event) => set({ [name]: /** @type {HTMLInputElement} */ (event.target).value }) } }));
  if (type === "replace") {
    const whole = h("label", { class: "choice" }, h("input", { type: "checkbox", on: { change: (/** @type {Event} */ event) => set({ whole: /** @type {HTMLInputElement} */ (event.target).checked }) } }), "Only values that are exactly this text");
    return [h("div", { class: "columns" }, textField("Find", "find"), textField("Replace with", "replacement")), whole];
  }
  if (type === "translate") {
    const input = (/** @type {string} */ text) => h("input", { type: "text", "aria-label": `New value for ${text || "empty"}`, placeholder: "unchanged", on: { input: (/** @type {Event} */ event) => set({ [text]: /** @type {HTMLInputElement} */ (event.target).value }) } });
    return [h("p", { class: "hint" }, "The most frequent values of the first rows with this error, and their new values."), h("div", { class: "repair-values" }, () => samples.value.map(([text, rows]) => [h("span", null, text || "(empty)", h("span", { class: "muted" }, ` ${formatNumber(rows)}×`)), untracked(() => input(text))]))];
  }
  if (type === "split") {
    const columns = job.columns.map((/** @type {string} */ name) => [name, name]);
    const other = job.columns.find((/** @type {string} */ name) => name !== column.peek()) ?? column.peek();
    set({ first: column.peek(), second: other });
    return [textField("Separator", "separator"), h("div", { class: "columns" }, selectField("First part to", columns, column.peek(), (value) => set({ first: value })), selectField("Second part to", columns, other, (value) => set({ second: value })))];
  }
  if (type === "format") return selectField("Format in the file", FORMAT_LABELS, FORMAT_LABELS[0][0], (value) => set({ format: value }));
  if (type === "default") return [textField("Value", "value"), h("p", { class: "hint" }, "The value replaces empty and invalid values.")];
  return h("p", { class: "hint" }, "The rows leave this list and the list of failed items. You can restore them under Failed items, Dismissed.");
}

/** @param {any} preview @param {any} rule @param {string} problem */
function previewContent(preview, rule, problem) {
  if (rule === null) return h("p", { class: "hint" }, "The preview appears when the rule is complete.");
  if (preview === null) return problem ? null : h("p", { class: "hint" }, "Checking the first rows …");
  if (preview.column === null) return h("p", { role: "status" }, `${pluralize(preview.rows, "row")} will be dismissed.`);
  const first = preview.checked < preview.rows ? `the first ${formatNumber(preview.checked)} of ` : "";
  const names = (/** @type {Record<string, any>} */ values) => Object.entries(values).map(([name, value]) => h("div", null, Object.keys(values).length > 1 ? `${name}: ` : null, cellText(value) || h("span", { class: "muted" }, "(empty)")));
  return [
    h("p", { role: "status" }, `The rule changes ${formatNumber(preview.changed)} of ${first}${pluralize(preview.rows, "row")}. After the change, ${formatNumber(preview.valid)} ${preview.valid === 1 ? "is" : "are"} valid.`),
    preview.too_large ? h("p", { class: "fault" }, `${pluralize(preview.too_large, "row")} would be too large and ${preview.too_large === 1 ? "stays" : "stay"} unchanged.`) : null,
    preview.examples.length
      ? h(
          "table",
          { "aria-label": "Examples" },
          h("thead", null, h("tr", null, ["Row", "Before", "After", "Remaining errors"].map((label) => h("th", { scope: "col" }, label)))),
          h("tbody", null, preview.examples.map((/** @type {any} */ one) => h("tr", null, h("th", { scope: "row" }, formatNumber(one.row)), h("td", null, names(one.before)), h("td", null, names(one.after)), h("td", { class: one.errors.length ? "fault" : "muted" }, one.errors.map((/** @type {any} */ error) => `${error.field ? `${error.field}: ` : ""}${error.reason}`).join("; ") || "none")))),
        )
      : null,
  ];
}
