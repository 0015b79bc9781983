// @ts-check
/** What can be done with a job. Nothing is shown as done before the service has said so. */
import { api, now as serverTime } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, counted, moment } from "../core/format.js";
import { until } from "../core/load.js";
import { address } from "../core/place.js";
import { answering, confirmDialog, showDialog } from "../ui/dialog.js";
import { isClosed } from "../ui/status.js";
import { tellIfFails, toast } from "../ui/toast.js";
import { tellOperation } from "./operation-words.js";
import { processNow } from "./process-now.js";
import { countRows, many, selectionBody, selectionWords } from "./selection-acts.js";

/** @param {any} job @param {(job: any) => void} changed */
export async function pause(job, changed) {
  const now = await tellIfFails(() => api.post(`/v1/jobs/${job.id}/pause`));
  if (now) changed(now);
}

/** @param {any} job @param {(job: any) => void} changed */
export async function resume(job, changed) {
  const now = await tellIfFails(() => api.post(`/v1/jobs/${job.id}/resume`));
  if (now) changed(now);
}

/** @param {any} job @param {(job: any) => void} changed */
export async function cancel(job, changed) {
  const fresh = await tellIfFails(() => api.get(`/v1/jobs/${job.id}`));
  if (!fresh) return;
  const waiting = fresh.counts.pending + fresh.counts.retry_wait;
  await confirmDialog({
    title: `Cancel ${job.key}?`,
    says: [
      h("p", null, `${counted(waiting, "item")} of ${count(fresh.counts.total)} will not be processed (counted ${moment(serverTime())}).`),
      h("p", { class: "muted" }, `What is in hand (${count(fresh.counts.processing)}) finishes and keeps its results. Cancelled items can be reprocessed later.`),
    ],
    act: "Cancel the job",
    isDanger: true,
    run: async () => changed(await api.post(`/v1/jobs/${job.id}/cancel`)),
  });
}

/** @param {any} job @param {() => void} gone */
export async function remove(job, gone) {
  const done = await confirmDialog({
    title: `Delete ${job.key}?`,
    says: [h("p", null, `Its ${counted(job.counts.total, "row")}, their results and its file are removed for good.`)],
    act: "Delete for good",
    isDanger: true,
    run: () => api.remove(`/v1/jobs/${job.id}`),
  });
  if (done) gone();
}

/**
 * Have a file made, and offer it when it is there.
 * @param {any} job
 * @param {import("./selection-acts.js").Chosen} [what] only these
 */
export async function exportJob(job, what = { statuses: [] }) {
  const found = await tellIfFails(() => countRows(job, what, "export"));
  if (!found) return;
  const asked = { format: "csv", spreadsheet_safe: true };
  const made = await showDialog(`Export ${many(found)} ${found.items === 1 ? "row" : "rows"}?`, (close, isFirm) => {
    const { fault, go } = answering(close, isFirm, () => api.post(`/v1/jobs/${job.id}/export`, selectionBody(what), { query: asked }));
    const option = (/** @type {string} */ value, /** @type {string} */ says) => h("label", { class: "choice" }, h("input", { type: "radio", name: "format", value, checked: value === asked.format, on: { change: () => (asked.format = value) } }), says);
    return [
      h("p", null, selectionWords(job, what)),
      h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, "Format"), option("csv", "CSV"), option("xlsx", "Excel workbook (xlsx)"), option("ndjson", "NDJSON, an object a line")),
      h("label", { class: "choice" }, h("input", { type: "checkbox", checked: asked.spreadsheet_safe, on: { change: (/** @type {Event} */ event) => (asked.spreadsheet_safe = /** @type {HTMLInputElement} */ (event.target).checked) } }), "Make text harmless that a spreadsheet might run"),
      fault,
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Not now"), h("button", { type: "submit", class: "main-act", disabled: isFirm, on: { click: go } }, `Export ${many(found)}`)),
    ];
  });
  if (made) follow(/** @type {any} */ (made));
}

/** @param {any} made the job of an export */
async function follow(made) {
  const waiting = toast(`The file is being made (${made.key}) …`, "plain", { stays: true });
  const now = await tellIfFails(() => until(() => api.get(`/v1/exports/${made.id}`), (one) => isClosed(one.status)));
  waiting.remove();
  if (!now) return;
  if (!now.download_url) toast(`The export did not succeed: ${now.failure_reason ?? now.status}`, "bad");
  else toast([`${counted(now.record_count ?? 0, "row")} are ready. `, h("a", { href: address(now.download_url), download: "" }, "Download")], "ok");
}

/**
 * Send items round again, after saying which and how many.
 * @param {any} job
 * @param {import("./selection-acts.js").Chosen} what
 * @param {() => void} [done]
 */
export async function reprocess(job, what, done) {
  const found = await tellIfFails(() => countRows(job, what, "reprocess"));
  if (!found) return false;
  if (found.items === 0) {
    toast("None of these rows can be sent round again: what is open needs it not, and rows of an import that went well are not kept one by one");
    return false;
  }
  let keeps = false;
  const isDone = await confirmDialog({
    title: `Reprocess ${many(found)} ${found.items === 1 ? "row" : "rows"}?`,
    says: [
      h("p", null, selectionWords(job, what)),
      h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, "Attempts"), h("label", { class: "choice" }, h("input", { type: "radio", name: "attempts", checked: true, on: { change: () => (keeps = false) } }), "Count from the beginning again"), h("label", { class: "choice" }, h("input", { type: "radio", name: "attempts", on: { change: () => (keeps = true) } }), "Only rows that have attempts left")),
      h("p", { class: "muted" }, "The handler is called again; what it does elsewhere may be repeated. Stored results are replaced when new ones come."),
    ],
    act: `Reprocess ${many(found)}`,
    run: async () => {
      const operation = await api.post(`/v1/jobs/${job.id}/reprocess`, { scope: what.ids ? "items" : "job", ...selectionBody(what), reset_attempts: !keeps });
      tellIfFails(() => tellOperation(operation));
    },
  });
  if (isDone) done?.();
  return isDone;
}

/** How many items of a job match, by its own counts. @param {any} job @param {{statuses: string[], codes?: string[]}} what */
export function matching(job, what) {
  if (what.codes?.length) return what.codes.reduce((sum, code) => sum + (job.errors[code] ?? 0), 0);
  if (what.statuses.length === 0) return job.counts.total;
  return what.statuses.reduce((sum, name) => sum + job.counts[name], 0);
}

/** The entries of a job's menu. @param {any} job @param {(job: any) => void} changed @param {() => void} gone @returns {import("../ui/menu.js").Action[]} */
export function jobActions(job, changed, gone) {
  const closed = isClosed(job.status);
  const isPaused = job.status === "paused";
  return [
    isPaused ? { label: "Resume", icon: "play", run: () => resume(job, changed) } : { label: "Pause", icon: "pause", run: () => pause(job, changed), why: closed || job.status === "cancelling" ? `the job is ${job.status}` : null },
    { label: "Cancel …", icon: "ban", run: () => cancel(job, changed), isDanger: true, why: closed ? `the job is ${job.status}` : null },
    { label: "Reprocess failed …", icon: "retry", run: () => reprocess(job, { statuses: ["failed"] }), why: job.counts.failed ? null : "nothing has failed" },
    { label: "Process now …", icon: "play", run: () => processNow(job), why: closed || isPaused || job.status === "cancelling" ? `the job is ${job.status}` : null },
    { label: "Export …", icon: "down", run: () => exportJob(job) },
    { label: "Delete …", icon: "close", run: () => remove(job, gone), isDanger: true },
  ];
}
