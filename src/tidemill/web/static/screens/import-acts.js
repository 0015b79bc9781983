// @ts-check
/** What can be done with an import. Nothing is shown as done before the service has said so. */
import { api, send } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, counted } from "../core/format.js";
import { stringify } from "../core/json.js";
import { until } from "../core/load.js";
import { address } from "../core/place.js";
import { go } from "../core/router.js";
import { confirmDialog, showDialog } from "../ui/dialog.js";
import { dropZone } from "../ui/drop.js";
import { refusal } from "../ui/refusal.js";
import { isClosed } from "../ui/status.js";
import { tellIfFails, toast } from "../ui/toast.js";
import { upload } from "../core/upload.js";

const OPEN = ["pending", "processing", "retry_wait"];

/** From a trial to the real thing. @param {any} trial */
export function promote(trial) {
  const { counts, effects } = trial;
  return confirmDialog({
    title: `Import ${counted(counts.done, "row")} into ${trial.resource_type}?`,
    says: [
      h("p", null, `The same file, with every correction made here: ${count(effects.inserted)} would be new, ${count(effects.updated)} changed, ${count(effects.unchanged)} are there already.`),
      counts.failed ? h("p", { class: "notice" }, `${counted(counts.failed, "row")} with errors will fail again, and can be mended there.`) : null,
    ],
    act: `Import ${count(counts.done)}`,
    run: async () => {
      const live = await api.post(`/v1/imports/${trial.job_id}/promote`);
      await go(`/imports/${live.key}`);
    },
  });
}

/** Correct a row, and have it checked again. @param {any} job @param {number} row from 1 @param {Record<string, any>} fields that have changed */
export async function mend(job, row, fields) {
  const line = new Blob([`${stringify({ _row: row, ...fields })}\n`], { type: "application/x-ndjson" });
  await send("POST", `/v1/imports/${job.job_id}/fixes`, { query: { format: "ndjson", filename: `row-${row}.ndjson` }, body: line });
}

/**
 * What a row is when it is settled again.
 * @param {any} job @param {number} row from 1
 * @param {AbortSignal} signal ends the waiting: nobody looks at the row any more
 * @returns {Promise<any>} the row as an item
 */
export function settledRow(job, row, signal) {
  return until(() => api.rows(`/v1/jobs/${job.job_id}/items/${row - 1}`, {}, signal), (item) => !OPEN.includes(item.status), { signal });
}

/** A file of mended rows. @param {any} job @param {() => void} done */
export function uploadFixes(job, done) {
  return showDialog("Upload mended rows", (close, isFirm) => {
    const told = h("div");
    const bar = /** @type {HTMLProgressElement} */ (h("progress", { class: "upload", "aria-label": "Upload", hidden: true }));
    /** @param {File} file */
    const take = async (file) => {
      if (isFirm.peek()) return; // one is on its way
      isFirm.value = true;
      told.replaceChildren();
      bar.hidden = false;
      bar.max = file.size;
      try {
        const operation = await upload(`/v1/imports/${job.job_id}/fixes`, file, { query: { filename: file.name }, onProgress: (sent) => (bar.value = sent) });
        toast(`${counted(operation.items, "mended row")} go round again`, "ok");
        close(true);
        done();
      } catch (error) {
        told.replaceChildren(refusal(error, null));
      }
      bar.hidden = true;
      isFirm.value = false;
    };
    return [
      h("p", null, "The file that you have downloaded, mended. Rows and columns that you leave out stay as they are; ", h("code", null, "_row"), " must stay. All rows are taken, or none."),
      dropZone({ label: "File of mended rows", says: "Drop the mended file here", hint: "any format that can be imported", onFile: take }),
      bar,
      told,
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Not now")),
    ];
  });
}

/** Have a workbook made, and take it as soon as it is there. @param {any} job @param {string[]} statuses none for all rows */
export async function workbook(job, statuses) {
  const waiting = toast("The workbook is being made …", "plain", { stays: true });
  await tellIfFails(async () => {
    const made = await api.post(`/v1/jobs/${job.job_id}/export`, undefined, { query: { format: "xlsx", statuses } });
    const now = await until(() => api.get(`/v1/exports/${made.id}`), (one) => isClosed(one.status));
    if (!now.download_url) throw new Error(`The workbook could not be made: ${now.failure_reason ?? now.status}`);
    toast([`${counted(now.record_count ?? 0, "row")}, `, h("a", { href: address(now.download_url), download: "" }, "the workbook again")], "ok");
    save(now.download_url);
  });
  waiting.remove();
}

/** Let the browser take a file. @param {string} path of the API */
export function save(path) {
  const link = h("a", { href: address(path), download: "", hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
}
