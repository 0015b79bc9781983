// @ts-check
/** Actions on a job. The UI shows a result only after the service has confirmed it. */
import { api, serverNow } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatNumber, formatTime, pluralize } from "../core/format.js";
import { pollUntil } from "../core/polling.js";
import { toUrl } from "../core/url.js";
import { columnPicker } from "../ui/column-picker.js";
import { confirmDialog, showDialog, submitHandler } from "../ui/dialog.js";
import { isClosed } from "../ui/status.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { reportOperation } from "./operation-text.js";
import { processNow } from "./process-now.js";
import { retryNotice } from "./redrive.js";
import { countRows, countText, describeSelection, selectionRequest } from "./selection-actions.js";

/** @param {any} job @param {(job: any) => void} changed */
export async function pauseJob(job, changed) {
  const now = await toastOnError(() => api.post(`/v1/jobs/${job.id}/pause`));
  if (now) changed(now);
}

/** @param {any} job @param {(job: any) => void} changed */
export async function resumeJob(job, changed) {
  const now = await toastOnError(() => api.post(`/v1/jobs/${job.id}/resume`));
  if (now) changed(now);
}

/** @param {any} job @param {(job: any) => void} changed */
export async function cancelJob(job, changed) {
  const latest = await toastOnError(() => api.get(`/v1/jobs/${job.id}`));
  if (!latest) return;
  const waiting = latest.counts.pending + latest.counts.retry_wait;
  await confirmDialog({
    title: `Cancel ${job.key}?`,
    content: [
      h("p", null, `${pluralize(waiting, "item")} of ${formatNumber(latest.counts.total)} will not be processed (counted at ${formatTime(serverNow())}).`),
      h("p", { class: "muted" }, `${pluralize(latest.counts.processing, "item")} in progress will finish and keep their results. You can run cancelled items again later.`),
    ],
    actionLabel: "Cancel the job",
    isDanger: true,
    run: async () => changed(await api.post(`/v1/jobs/${job.id}/cancel`)),
  });
}

/** @param {any} job @param {() => void} gone */
async function deleteJob(job, gone) {
  const done = await confirmDialog({
    title: `Delete ${job.key}?`,
    content: [h("p", null, `Its ${pluralize(job.counts.total, "row")}, their results and its file are permanently deleted.`)],
    actionLabel: "Delete permanently",
    isDanger: true,
    run: () => api.delete(`/v1/jobs/${job.id}`),
  });
  if (done) gone();
}

/**
 * Exports items and offers the file when it is ready.
 * @param {any} job
 * @param {import("./selection-actions.js").ItemSelection} [what] the items to export; all by default
 */
export async function exportJob(job, what = { statuses: [] }) {
  const answers = await toastOnError(() => Promise.all([countRows(job, what, "export"), api.get(`/v1/jobs/${job.id}/export/columns`)]));
  if (!answers) return;
  const [found, columns] = answers;
  const params = { format: "csv", spreadsheet_safe: true };
  /** @type {string[]} */
  let chosen = [];
  const made = await showDialog(`Export ${countText(found)} ${found.items === 1 ? "row" : "rows"}?`, (close, isFirm) => {
    const { errorLine, submit } = submitHandler(close, isFirm, () => api.post(`/v1/jobs/${job.id}/export`, { ...selectionRequest(what), columns: chosen }, { query: params }));
    const option = (/** @type {string} */ value, /** @type {string} */ caption) => h("label", { class: "choice" }, h("input", { type: "radio", name: "format", value, checked: value === params.format, on: { change: () => (params.format = value) } }), caption);
    return [
      h("p", null, describeSelection(job, what)),
      h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, "Format"), option("csv", "CSV"), option("xlsx", "Excel workbook (xlsx)"), option("ndjson", "NDJSON (one object per line)"), option("json", "JSON (list)"), option("parquet", "Parquet")),
      h("details", null, h("summary", null, "Choose columns"), columnPicker(columns.map((/** @type {any} */ one) => one.header), [], (names) => (chosen = names))),
      h("label", { class: "choice" }, h("input", { type: "checkbox", checked: params.spreadsheet_safe, on: { change: (/** @type {Event} */ event) => (params.spreadsheet_safe = /** @type {HTMLInputElement} */ (event.target).checked) } }), "Escape formulas (text that a spreadsheet could run)"),
      errorLine,
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Go back"), h("button", { type: "submit", class: "main-act", disabled: isFirm, on: { click: submit } }, `Export ${countText(found)}`)),
    ];
  });
  if (made) offerDownload(/** @type {any} */ (made));
}

/** @param {any} made the export job */
async function offerDownload(made) {
  const waiting = showToast(`Creating the file (${made.key}) …`, "plain", { isPersistent: true });
  const now = await toastOnError(() => pollUntil(() => api.get(`/v1/exports/${made.id}`), (one) => isClosed(one.status)));
  waiting.remove();
  if (!now) return;
  if (!now.download_url) showToast(`The export failed: ${now.failure_reason ?? now.status}`, "bad");
  else showToast([`Export with ${pluralize(now.record_count ?? 0, "row")} ready. `, h("a", { href: toUrl(now.download_url), download: "" }, "Download")], "ok");
}

/**
 * Requeues items after a confirmation that shows the selection and the count. "Retry" if all items failed, else "Run again".
 * @param {any} job
 * @param {import("./selection-actions.js").ItemSelection} what
 * @param {() => void} [done]
 */
export async function reprocessItems(job, what, done) {
  const counts = await toastOnError(() => Promise.all([countRows(job, what, "reprocess"), countRows(job, what, "reprocess", undefined, { reset_attempts: false })]));
  if (!counts) return false;
  const [found, retryable] = counts;
  if (found.items === 0) {
    showToast("None of these rows can run again. Open rows are already queued, and imports do not keep their successful rows.");
    return false;
  }
  const notice = await toastOnError(() => retryNotice(job, what));
  const isRetry = what.statuses.length === 1 && what.statuses[0] === "failed";
  const rowsText = `${countText(found)} ${found.items === 1 ? "row" : "rows"}`;
  let keeps = false;
  const isDone = await confirmDialog({
    title: isRetry ? `Retry ${rowsText}?` : `Run ${rowsText} again?`,
    content: [
      h("p", null, describeSelection(job, what)),
      notice,
      h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, "Attempts"), h("label", { class: "choice" }, h("input", { type: "radio", name: "attempts", checked: true, on: { change: () => (keeps = false) } }), "Reset attempts"), h("label", { class: "choice" }, h("input", { type: "radio", name: "attempts", on: { change: () => (keeps = true) } }), `Keep attempts, and leave permanent failures as they are (${countText(retryable)} ${retryable.items === 1 ? "row runs" : "rows run"})`)),
      h("p", { class: "muted" }, "The handler runs again, so its side effects can repeat. New results replace the stored ones."),
    ],
    actionLabel: isRetry ? `Retry ${countText(found)}` : `Run ${countText(found)} again`,
    run: async () => {
      const operation = await api.post(`/v1/jobs/${job.id}/reprocess`, { scope: what.ids ? "items" : "job", ...selectionRequest(what), reset_attempts: !keeps });
      toastOnError(() => reportOperation(operation));
    },
  });
  if (isDone) done?.();
  return isDone;
}

/** The number of matching items, from the counts of the job. @param {any} job @param {{statuses: string[], codes?: string[]}} what */
export function countMatchingItems(job, what) {
  if (what.codes?.length) return what.codes.reduce((sum, code) => sum + (job.errors[code] ?? 0), 0);
  if (what.statuses.length === 0) return job.counts.total;
  return what.statuses.reduce((sum, name) => sum + job.counts[name], 0);
}

/** The entries of a job's menu. @param {any} job @param {(job: any) => void} changed @param {() => void} gone @returns {import("../ui/menu.js").Action[]} */
export function jobMenuActions(job, changed, gone) {
  const closed = isClosed(job.status);
  const isPaused = job.status === "paused";
  return [
    isPaused ? { label: "Resume", icon: "play", run: () => resumeJob(job, changed) } : { label: "Pause", icon: "pause", run: () => pauseJob(job, changed), disabledReason: closed || job.status === "cancelling" ? `The job is ${job.status}` : null },
    { label: "Cancel …", icon: "ban", run: () => cancelJob(job, changed), isDanger: true, disabledReason: closed ? `The job is ${job.status}` : null },
    { label: "Retry failed …", icon: "retry", run: () => reprocessItems(job, { statuses: ["failed"] }), disabledReason: job.counts.failed ? null : "No failed rows" },
    { label: "Process now …", icon: "bolt", run: () => processNow(job), disabledReason: closed || isPaused || job.status === "cancelling" ? `The job is ${job.status}` : null },
    { label: "Export …", icon: "export", run: () => exportJob(job) },
    { label: "Delete …", icon: "trash", run: () => deleteJob(job, gone), isDanger: true },
  ];
}
