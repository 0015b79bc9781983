// @ts-check
/** Actions on an import. The UI shows a result only after the service has confirmed it. */
import { api, sendRequest } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatNumber, pluralize } from "../core/format.js";
import { stringify } from "../core/json.js";
import { pollUntil } from "../core/polling.js";
import { navigate } from "../core/router.js";
import { uploadFile } from "../core/upload.js";
import { toUrl } from "../core/url.js";
import { confirmDialog, showDialog } from "../ui/dialog.js";
import { dropZone } from "../ui/drop-zone.js";
import { validationNotice } from "../ui/notices.js";
import { isClosed } from "../ui/status.js";
import { showToast, toastOnError } from "../ui/toast.js";

const OPEN_STATUSES = new Set(["pending", "processing", "retry_wait"]);

/** Starts the import that a dry run has checked. @param {any} dryRun */
export function promoteImport(dryRun) {
  const { counts, effects } = dryRun;
  return confirmDialog({
    title: `Import ${pluralize(counts.done, "row")} into ${dryRun.resource_type}?`,
    content: [
      h("p", null, `The same file with all fixes: ${pluralize(effects.inserted, "row")} will be inserted, ${formatNumber(effects.updated)} updated, ${formatNumber(effects.unchanged)} left unchanged.`),
      counts.failed ? h("p", { class: "notice" }, `${pluralize(counts.failed, "row")} with errors will fail again. You can fix them in the import.`) : null,
    ],
    actionLabel: `Import ${formatNumber(counts.done)}`,
    run: async () => {
      const live = await api.post(`/v1/imports/${dryRun.job_id}/promote`);
      await navigate(`/imports/${live.key}`);
    },
  });
}

/** Fixes a row and checks it again. @param {any} job @param {number} row the first row is 1 @param {Record<string, any>} fields the changed fields only */
export async function fixRow(job, row, fields) {
  const line = new Blob([`${stringify({ _row: row, ...fields })}\n`], { type: "application/x-ndjson" });
  await sendRequest("POST", `/v1/imports/${job.job_id}/fixes`, { query: { format: "ndjson", filename: `row-${row}.ndjson` }, body: line });
}

/**
 * Waits until a row is settled again.
 * @param {any} job @param {number} row the first row is 1
 * @param {AbortSignal} signal stops waiting
 * @returns {Promise<any>} the row as an item
 */
export function waitForRow(job, row, signal) {
  return pollUntil(() => api.getExact(`/v1/jobs/${job.job_id}/items/${row - 1}`, {}, signal), (item) => !OPEN_STATUSES.has(item.status), { signal });
}

/** Prompts for a file of fixed rows and uploads it. @param {any} job @param {() => void} done */
export function uploadFixes(job, done) {
  return showDialog("Upload fixed rows", (close, isFirm) => {
    const errorBox = h("div");
    const bar = /** @type {HTMLProgressElement} */ (h("progress", { class: "upload", "aria-label": "Upload", hidden: true }));
    /** @param {File} file */
    const sendFile = async (file) => {
      if (isFirm.peek()) return; // an upload is in progress
      isFirm.value = true;
      errorBox.replaceChildren();
      bar.hidden = false;
      bar.max = file.size;
      try {
        const operation = await uploadFile(`/v1/imports/${job.job_id}/fixes`, file, { query: { filename: file.name }, onProgress: (sent) => (bar.value = sent) });
        showToast(`Requeued ${pluralize(operation.items, "fixed row")}`, "ok");
        close(true);
        done();
      } catch (error) {
        errorBox.replaceChildren(validationNotice(/** @type {Error} */ (error), null));
      }
      bar.hidden = true;
      isFirm.value = false;
    };
    return [
      h("p", null, "Upload the failed rows that you downloaded and fixed. Rows and columns that you leave out stay unchanged. Keep the column ", h("code", null, "_row"), ". If a row cannot be fixed, no row is changed."),
      dropZone({ label: "File with fixed rows", text: "Drop the fixed file here", hint: "Any format that can be imported", onFile: sendFile }),
      bar,
      errorBox,
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Go back")),
    ];
  });
}

/** Exports rows as a workbook and downloads it when it is ready. @param {any} job @param {string[]} statuses empty for all rows */
export async function downloadWorkbook(job, statuses) {
  const waiting = showToast("Creating the workbook …", "plain", { isPersistent: true });
  await toastOnError(async () => {
    const made = await api.post(`/v1/jobs/${job.job_id}/export`, undefined, { query: { format: "xlsx", statuses } });
    const now = await pollUntil(() => api.get(`/v1/exports/${made.id}`), (one) => isClosed(one.status));
    if (!now.download_url) throw new Error(`Could not create the workbook: ${now.failure_reason ?? now.status}`);
    showToast([`Workbook with ${pluralize(now.record_count ?? 0, "row")} ready. `, h("a", { href: toUrl(now.download_url), download: "" }, "Download again")], "ok");
    downloadFile(now.download_url);
  });
  waiting.remove();
}

/** Downloads a file. @param {string} path of the API */
export function downloadFile(path) {
  const link = h("a", { href: toUrl(path), download: "", hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}
