// @ts-check
/** A failed row beside the list: every column can be mended, and the row is checked again at once. */
import { api, isAbort } from "../core/api.js";
import { h, uid } from "../core/dom.js";
import { count } from "../core/format.js";
import { Exact, cellText, parse, stringify } from "../core/json.js";
import { load } from "../core/load.js";
import { computed, effect, onCleanup, signal, untracked } from "../core/signal.js";
import { openDrawer } from "../ui/drawer.js";
import { failure, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { status } from "../ui/status.js";
import { mend, settledRow } from "./import-acts.js";

const LONG = 80;

/**
 * @param {any} job the import
 * @param {import("../core/signal.js").Signal<number | null>} row from 1; which one is shown
 * @param {{columns: string[], isAt: (row: number) => boolean, next: (row: number) => number | null, onMended: (row: number, item: any) => void, onGo: (row: number | null) => void}} how
 */
export function openRow(job, row, how) {
  const shown = () => row.value ?? 1;
  const drawer = openDrawer(
    h("span", null, () => `Row ${count(shown())}`),
    () => [
      () => {
        const now = shown();
        const item = load((signal) => api.rows(`/v1/jobs/${job.job_id}/items/${now - 1}`, {}, signal));
        // One form for each row: it is asked for again when somebody signs in again, and what was typed stays.
        const isThere = computed(() => item.data.value !== null);
        return h(
          "div",
          { class: "stack" },
          () => (item.error.value ? failure(item.error.value, item.again) : null),
          () => (isThere.value ? untracked(() => rowForm(job, now, item.data.value, how)) : item.error.value ? null : waiting()),
        );
      },
    ],
    { onClose: () => how.onGo(null) },
  );
  // The field that was typed in is gone with its row: who presses Escape now still means the drawer.
  effect(() => {
    row.value;
    /** @type {HTMLElement | null} */ (drawer.element.querySelector(".body"))?.focus({ preventScroll: true });
  });
  return drawer;
}

/** All that is wrong with an item. @param {any} item @returns {any[]} */
export function faultsOf(item) {
  return item.error?.errors ?? (item.error ? [item.error] : []);
}

/** @param {any} job @param {number} row @param {any} item @param {Parameters<typeof openRow>[2]} how */
function rowForm(job, row, item, how) {
  const now = signal(item);
  const isBusy = signal(false);
  const fault = signal("");
  const stop = new AbortController(); // with this form
  onCleanup(() => stop.abort());
  const isObject = item.input !== null && typeof item.input === "object" && !Array.isArray(item.input);
  let before = isObject ? item.input : {}; // what the service holds: changes are told from that
  let isSent = false; // and how it ended is not known yet
  const columns = [...new Set([...how.columns, ...Object.keys(before)])];
  /** @type {Map<string, HTMLInputElement | HTMLTextAreaElement>} */
  const inputs = new Map();
  const columnOf = (/** @type {string | null} */ field) => Object.entries(job.mapping).find(([, name]) => name === field)?.[0] ?? field;
  const wrong = () => Map.groupBy(faultsOf(now.value), (one) => columnOf(one.field ?? null));

  /** @param {boolean} goesOn */
  const saveIt = async (goesOn) => {
    fault.value = "";
    try {
      const changed = changes(inputs, before);
      isBusy.value = true;
      if (!isSent || Object.keys(changed).length) await mend(job, row, changed);
      before = { ...before, ...changed };
      isSent = true;
      const settled = await settledRow(job, row, stop.signal);
      isSent = false;
      if (settled.input !== null && typeof settled.input === "object" && !Array.isArray(settled.input)) before = settled.input;
      how.onMended(row, settled);
      now.value = settled;
      const next = goesOn && settled.status !== "failed" && how.isAt(row) ? how.next(row) : null;
      if (next !== null) how.onGo(next);
    } catch (error) {
      if (!isAbort(error)) fault.value = /** @type {Error} */ (error).message;
    } finally {
      isBusy.value = false;
    }
  };
  /** @param {string} column */
  const field = (column) => {
    const text = cellText(before[column]);
    const id = uid("why");
    const isLong = text.length > LONG || text.includes("\n");
    const input = /** @type {HTMLInputElement} */ (h(isLong ? "textarea" : "input", { rows: isLong ? "4" : null, type: isLong ? null : "text", value: text, spellcheck: "false", autocomplete: "off", readOnly: () => isBusy.value || now.value.status !== "failed", "aria-invalid": () => (wrong().has(column) ? "true" : null), "aria-describedby": id }));
    inputs.set(column, input);
    const field = job.mapping[column];
    return h("div", { class: "stack tight" }, h("label", { class: "field" }, h("span", null, column, field && field !== column ? h("span", { class: "muted" }, ` → ${field}`) : null, !field ? h("span", { class: "muted" }, " (not imported)") : null), input), h("span", { class: "fault", id }, () => (wrong().get(column) ?? []).map((one) => one.reason).join("; ")));
  };
  const general = () => faultsOf(now.value).filter((one) => !columns.includes(/** @type {string} */ (columnOf(one.field ?? null))));
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    saveIt(true);
  };
  const form = h(
    "form",
    { class: "stack", on: { submit } },
    h("div", { class: "row", role: "status" }, () => (isBusy.value ? h("span", { class: "muted" }, "Checked again …") : status(now.value.status, now.value.status === "failed" ? "has errors" : "good now")), item.error?.line ? h("span", { class: "muted" }, `line ${count(item.error.line)}`) : null, item.fixes?.length ? h("span", { class: "chip" }, `corrected ${item.fixes.length}×`) : null),
    () => general().map((one) => h("p", { class: "fault" }, one.reason)),
    isObject ? null : h("div", { class: "stack tight" }, h("h3", null, "As it stands in the file"), h("pre", { class: "json", tabindex: "0" }, cellText(item.input))),
    columns.map(field),
    h("p", { class: "fault", role: "alert", hidden: () => fault.value === "" }, fault),
    h(
      "div",
      { class: "row" },
      h("button", { type: "submit", class: "main-act", disabled: () => isBusy.value || now.value.status !== "failed" }, icon("check"), "Save and check"),
      h("button", { type: "button", disabled: () => isBusy.value || how.next(row) === null, on: { click: () => how.onGo(how.next(row)) } }, "Next row"),
    ),
    h("p", { class: "hint" }, "Enter saves. The row is checked again, alone; if it is good, the next one comes."),
  );
  window.setTimeout(() => (inputs.get([...wrong().keys()].find((one) => inputs.has(/** @type {string} */ (one))) ?? columns[0]) ?? null)?.focus());
  return form;
}

/** What was changed; text that was no text stays what it was. @param {Map<string, HTMLInputElement | HTMLTextAreaElement>} inputs @param {Record<string, any>} before */
function changes(inputs, before) {
  /** @type {Record<string, any>} */
  const found = {};
  for (const [column, input] of inputs) {
    const was = before[column];
    if (input.value === cellText(was)) continue;
    found[column] = was === null || was === undefined || typeof was === "string" ? input.value : typed(input.value, column);
  }
  return found;
}

/** @param {string} text @param {string} column */
function typed(text, column) {
  try {
    return parse(text);
  } catch {
    throw new Error(`${column}: this is not JSON, and what stood there was (${stringify(new Exact("7"))}, true, null, "text" in quotes)`);
  }
}
