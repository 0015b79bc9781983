// @ts-check
/** Undo and redo of an import: buttons, a dialog with a preview, and the rows that were not reversed. */
import { api, isAbortError } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatNumber, pluralize } from "../core/format.js";
import { pollUntil } from "../core/polling.js";
import { effect, onCleanup, signal } from "../core/signal.js";
import { showDialog } from "../ui/dialog.js";
import { icon } from "../ui/icons.js";
import { singleFlight } from "../ui/single-flight.js";
import { isClosed } from "../ui/status.js";
import { toastOnError } from "../ui/toast.js";
import { reportOperation } from "./operation-text.js";

const NOTHING = { undoable: 0, redoable: 0, operation: null, kept: 0, blocked: 0 };

/**
 * The buttons and the result of an undo.
 * @param {import("../core/signal.js").Signal<any>} job the import @param {() => Promise<void>} again reloads it
 */
export function importUndo(job, again) {
  const state = signal(/** @type {any} */ (NOTHING));
  const stop = new AbortController();
  onCleanup(() => stop.abort());
  const load = async () => {
    try {
      state.value = await api.get(`/v1/imports/${job.peek().job_id}/undo`, {}, stop.signal);
    } catch (error) {
      if (!isAbortError(error)) state.value = NOTHING; // the import itself reports the error
    }
  };
  effect(() => {
    if (job.value.undo && isClosed(job.value.status)) void load();
  });
  /** @param {boolean} redo */
  const open = (redo) =>
    singleFlight(async () => {
      const operation = await undoDialog(job.peek(), state.peek(), redo);
      if (operation === null) return;
      await load();
      await reportOperation(operation);
      await Promise.all([load(), again()]);
    });
  const isIdle = () => isClosed(job.value.status) && state.value.operation?.state !== "running";
  return {
    buttons: [
      h("button", { type: "button", hidden: () => !isIdle() || state.value.undoable === 0, on: { click: open(false) } }, icon("undo"), "Undo import …"),
      h("button", { type: "button", hidden: () => !isIdle() || state.value.redoable === 0, on: { click: open(true) } }, icon("retry"), "Redo …"),
    ],
    notice: () => resultNotice(job.peek(), state.value),
  };
}

/** @param {any} job @param {any} state */
function resultNotice(job, state) {
  const { operation, kept, blocked } = state;
  if (operation === null) return null;
  const verb = operation.verb === "redo" ? "Redone" : "Undone";
  const result = operation.state === "running" ? `An ${operation.verb} is running: ${pluralize(operation.items, "row")} so far.` : `${verb}: ${pluralize(operation.items, "row")}. ${formatNumber(kept)} kept, because they have changed since. ${formatNumber(blocked)} could not be reversed.`;
  const fault = operation.error ? h("p", { class: "fault" }, operation.error) : null;
  return h("div", { class: "notice", data: { tone: "plain" } }, h("p", { role: "status" }, result), fault, kept + blocked && operation.state !== "running" ? exceptionRows(job) : null);
}

/** The rows that were not reversed, a page at a time. @param {any} job */
function exceptionRows(job) {
  const rows = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ ("")); // empty before the first page
  const loadPage = () =>
    toastOnError(async () => {
      const page = await api.get(`/v1/imports/${job.job_id}/undo/rows`, next.peek() ? { after: next.peek() } : {});
      rows.value = [...rows.peek(), ...page.rows];
      next.value = page.next_page ?? null;
    });
  const cells = (/** @type {any} */ one) => h("tr", null, h("th", { scope: "row" }, one.key.join(", ")), h("td", null, one.status), h("td", null, one.reason));
  return h(
    "details",
    { on: { toggle: (/** @type {Event} */ event) => void (/** @type {HTMLDetailsElement} */ (event.target).open && next.peek() === "" && loadPage()) } },
    h("summary", null, "Rows that were not reversed"),
    h("div", { class: "scroll" }, h("table", { "aria-label": "Rows that were not reversed" }, h("thead", null, h("tr", null, ["Key", "Result", "Reason"].map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, () => rows.value.map(cells)))),
    h("button", { type: "button", hidden: () => !next.value, on: { click: singleFlight(loadPage) } }, "Show more"),
  );
}

/** @param {any} job @param {any} state @param {boolean} redo @returns {Promise<any>} the operation; null if it was not started */
function undoDialog(job, state, redo) {
  const total = redo ? state.redoable : state.undoable;
  return showDialog(redo ? `Redo ${job.key}` : `Undo ${job.key}`, (close, isLocked) => {
    const preview = signal({ checked: 0, reversed: 0, kept: 0, blocked: 0 });
    const isChecked = signal(false);
    const problem = signal("");
    const running = signal(/** @type {any} */ (null));
    const stop = new AbortController();
    onCleanup(() => stop.abort());
    const fail = (/** @type {unknown} */ error) => {
      if (!isAbortError(error)) problem.value = /** @type {Error} */ (error).message;
    };
    void checkRows(job, redo, preview, stop.signal).then(() => (isChecked.value = true), fail);

    const apply = singleFlight(async () => {
      problem.value = "";
      isLocked.value = true;
      try {
        running.value = await api.post(`/v1/imports/${job.job_id}/undo`, { redo });
        isLocked.value = false; // the operation continues if the user closes the dialog
        const id = running.peek().id;
        if (running.peek().state === "running") await pollUntil(() => api.get(`/v1/operations/${id}`, {}, stop.signal), (now) => now.state !== "running", { signal: stop.signal, onStep: (now) => (running.value = now) });
        close(running.peek());
      } catch (error) {
        isLocked.value = false;
        if (running.peek() === null) fail(error);
      }
    });
    const isBusy = () => running.value !== null;
    /** @param {string} label @param {() => number} value */
    const figure = (label, value) => h("div", null, h("dt", null, label), h("dd", null, () => formatNumber(value())));
    return [
      h("p", { hidden: isBusy }, redo ? `Rows of ${job.resource_type} that were undone get the imported content again.` : `Rows of ${job.resource_type} that the import inserted are deleted, and updated rows get their earlier content.`),
      h("dl", { class: "figures", hidden: isBusy }, figure(redo ? "will be restored" : "will be reversed", () => preview.value.reversed), figure("kept: changed since", () => preview.value.kept), figure("blocked: other rows refer to them", () => preview.value.blocked)),
      h("p", { class: "hint", role: "status", hidden: isBusy }, () => (isChecked.value ? `Checked ${pluralize(preview.value.checked, "row")}.` : `Checked ${formatNumber(preview.value.checked)} of ${pluralize(total, "row")} …`)),
      h("p", { class: "fault", role: "alert", hidden: () => problem.value === "" }, problem),
      h("div", { class: "stack tight", hidden: () => !isBusy() }, h("p", { role: "status" }, () => (running.value ? `${pluralize(running.value.items, "row")} ${redo ? "restored" : "reversed"} so far` : "")), h("progress", { "aria-label": "Progress", max: String(Math.max(total, 1)), value: () => String((running.value?.items ?? 0) + (running.value?.unchanged ?? 0)) })),
      h(
        "div",
        { class: "acts" },
        h("button", { type: "button", disabled: isLocked, on: { click: () => close(running.peek()) } }, () => (isBusy() ? "Continue in the background" : "Go back")),
        h("button", { type: "submit", class: redo ? "main-act" : "danger", hidden: isBusy, disabled: () => isLocked.value || !isChecked.value || preview.value.reversed === 0, on: { click: apply } }, () => `${redo ? "Redo" : "Undo"} ${pluralize(preview.value.reversed, "row")}`),
      ),
    ];
  });
}

/** Adds the numbers of all parts of the preview. @param {any} job @param {boolean} redo @param {import("../core/signal.js").Signal<any>} preview @param {AbortSignal} stop */
async function checkRows(job, redo, preview, stop) {
  let after = null;
  do {
    const part = /** @type {any} */ (await api.post(`/v1/imports/${job.job_id}/undo/preview`, { redo, after }));
    if (stop.aborted) return;
    const before = preview.peek();
    preview.value = { checked: before.checked + part.checked, reversed: before.reversed + part.reversed, kept: before.kept + part.kept, blocked: before.blocked + part.blocked };
    after = part.next_page ?? null;
  } while (after !== null);
}
