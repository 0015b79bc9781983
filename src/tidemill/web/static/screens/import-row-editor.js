// @ts-check
/** The editor of a failed row, in a drawer. Saving checks the row again, or imports it if the import is not a dry run. */
import { api, isAbortError } from "../core/api.js";
import { h, uniqueId } from "../core/dom.js";
import { formatNumber, humanize } from "../core/format.js";
import { cellText, parse } from "../core/json.js";
import { remoteData } from "../core/remote-data.js";
import { computed, effect, onCleanup, signal, untracked } from "../core/signal.js";
import { openDrawer } from "../ui/drawer.js";
import { icon } from "../ui/icons.js";
import { errorNotice, loadingNotice } from "../ui/notices.js";
import { statusBadge } from "../ui/status.js";
import { fixRow, waitForRow } from "./import-actions.js";

const LONG_VALUE_CHARS = 80;

/**
 * @param {any} job the import
 * @param {import("../core/signal.js").Signal<number | null>} row the number of the shown row; the first is 1
 * @param {{columns: string[], isAt: (row: number) => boolean, next: (row: number) => number | null, onFixed: (row: number, item: any) => void, onNavigate: (row: number | null) => void}} options
 */
export function openRowEditor(job, row, options) {
  const shown = () => row.value ?? 1;
  const drawer = openDrawer(
    h("span", null, () => `Row ${formatNumber(shown())}`),
    () => [
      () => {
        const now = shown();
        const item = remoteData((signal) => api.getExact(`/v1/jobs/${job.job_id}/items/${now - 1}`, {}, signal));
        // One form per row. Signing in again reloads the item, but keeps what the user has typed.
        const isThere = computed(() => item.data.value !== null);
        return h(
          "div",
          { class: "stack" },
          () => (item.error.value ? errorNotice(item.error.value, item.reload) : null),
          () => (isThere.value ? untracked(() => rowForm(job, now, item.data.value, options)) : item.error.value ? null : loadingNotice()),
        );
      },
    ],
    { onClose: () => options.onNavigate(null) },
  );
  // The focused field is removed with its row. Focus the drawer, so that Escape still closes it.
  effect(() => {
    void row.value;
    /** @type {HTMLElement | null} */ (drawer.element.querySelector(".body"))?.focus({ preventScroll: true });
  });
  return drawer;
}

/** All errors of an item. @param {any} item @returns {any[]} */
export function itemErrors(item) {
  return item.error?.errors ?? (item.error ? [item.error] : []);
}

/** The state of a row: a dry run checks a row, an import also writes it. @param {any} job @param {string} status of its item */
export function rowState(job, status) {
  if (status === "failed") return "has errors";
  return status !== "done" ? humanize(status) : job.validate_only ? "valid" : "imported";
}

/** @param {any} job @param {number} row @param {any} item @param {Parameters<typeof openRowEditor>[2]} options */
function rowForm(job, row, item, options) {
  const now = signal(item);
  const isBusy = signal(false);
  const problem = signal("");
  const stop = new AbortController(); // aborted with this form
  onCleanup(() => stop.abort());
  const isObject = item.input !== null && typeof item.input === "object" && !Array.isArray(item.input);
  let before = isObject ? item.input : {}; // the values the service has; only differences are sent
  let isSent = false; // a fix was sent, and its result is unknown
  const columns = [...new Set([...options.columns, ...Object.keys(before)])];
  /** @type {Map<string, HTMLInputElement | HTMLTextAreaElement>} */
  const inputs = new Map();
  const columnOf = (/** @type {string | null} */ field) => Object.entries(job.mapping).find(([, name]) => name === field)?.[0] ?? field;
  const errorsByColumn = () => Map.groupBy(itemErrors(now.value), (one) => columnOf(one.field ?? null));

  /** @param {boolean} opensNext */
  const save = async (opensNext) => {
    problem.value = "";
    try {
      const changed = changedFields(inputs, before);
      isBusy.value = true;
      if (!isSent || Object.keys(changed).length) await fixRow(job, row, changed);
      before = { ...before, ...changed };
      isSent = true;
      const settled = await waitForRow(job, row, stop.signal);
      isSent = false;
      if (settled.input !== null && typeof settled.input === "object" && !Array.isArray(settled.input)) before = settled.input;
      options.onFixed(row, settled);
      now.value = settled;
      const next = opensNext && settled.status !== "failed" && options.isAt(row) ? options.next(row) : null;
      if (next !== null) options.onNavigate(next);
    } catch (error) {
      if (!isAbortError(error)) problem.value = /** @type {Error} */ (error).message;
    } finally {
      isBusy.value = false;
    }
  };
  /** @param {string} column */
  const field = (column) => {
    const text = cellText(before[column]);
    const id = uniqueId("why");
    const isLong = text.length > LONG_VALUE_CHARS || text.includes("\n");
    const input = /** @type {HTMLInputElement} */ (h(isLong ? "textarea" : "input", { rows: isLong ? "4" : null, type: isLong ? null : "text", value: text, spellcheck: "false", autocomplete: "off", readOnly: () => isBusy.value || now.value.status !== "failed", "aria-invalid": () => (errorsByColumn().has(column) ? "true" : null), "aria-describedby": id }));
    inputs.set(column, input);
    const target = job.mapping[column];
    return h("div", { class: "stack tight" }, h("label", { class: "field" }, h("span", null, column, target && target !== column ? h("span", { class: "muted" }, ` → ${target}`) : null, !target ? h("span", { class: "muted" }, " (not imported)") : null), input), h("span", { class: "fault", id }, () => (errorsByColumn().get(column) ?? []).map((one) => one.reason).join("; ")));
  };
  const otherErrors = () => itemErrors(now.value).filter((one) => !columns.includes(/** @type {string} */ (columnOf(one.field ?? null))));
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    save(true);
  };
  const form = h(
    "form",
    { class: "stack", on: { submit } },
    h("div", { class: "row", role: "status" }, () => (isBusy.value ? h("span", { class: "muted" }, job.validate_only ? "Checking …" : "Importing …") : statusBadge(now.value.status, rowState(job, now.value.status))), item.error?.line ? h("span", { class: "muted" }, `line ${formatNumber(item.error.line)}`) : null, item.fixes?.length ? h("span", { class: "chip" }, `fixed ${item.fixes.length}×`) : null),
    () => otherErrors().map((one) => h("p", { class: "fault" }, one.reason)),
    isObject ? null : h("div", { class: "stack tight" }, h("h3", null, "Original text in the file"), h("pre", { class: "json", tabindex: "0" }, cellText(item.input))),
    columns.map(field),
    h("p", { class: "fault", role: "alert", hidden: () => problem.value === "" }, problem),
    h(
      "div",
      { class: "row" },
      h("button", { type: "submit", class: "main-act", disabled: () => isBusy.value || now.value.status !== "failed" }, icon("check"), job.validate_only ? "Save and check" : "Save and retry"),
      h("button", { type: "button", disabled: () => isBusy.value || options.next(row) === null, on: { click: () => options.onNavigate(options.next(row)) } }, "Next row"),
    ),
    h("p", { class: "hint" }, job.validate_only ? "Press Enter to save. Only this row is checked again. If it is valid, the next row opens." : "Press Enter to save. Tidemill imports this row if it is valid, then opens the next one."),
  );
  window.setTimeout(() => (inputs.get([...errorsByColumn().keys()].find((one) => inputs.has(/** @type {string} */ (one))) ?? columns[0]) ?? null)?.focus());
  return form;
}

/** The changed values. Values that were not text are parsed as JSON. @param {Map<string, HTMLInputElement | HTMLTextAreaElement>} inputs @param {Record<string, any>} before */
function changedFields(inputs, before) {
  /** @type {Record<string, any>} */
  const found = {};
  for (const [column, input] of inputs) {
    const was = before[column];
    if (input.value === cellText(was)) continue;
    found[column] = was === null || was === undefined || typeof was === "string" ? input.value : parseJsonValue(input.value, column);
  }
  return found;
}

/** @param {string} text @param {string} column */
export function parseJsonValue(text, column) {
  try {
    return parse(text);
  } catch {
    throw new Error(`${column}: must be valid JSON, such as 7, true, null or "text" in quotes`);
  }
}
