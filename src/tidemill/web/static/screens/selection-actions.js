// @ts-check
/** A selection of a job's items: as a request, as text, and the actions on it. The service counts the items. */
import { api, serverNow } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatNumber, formatTime, humanize, pluralize } from "../core/format.js";
import { confirmDialog } from "../ui/dialog.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { reportOperation } from "./operation-text.js";

/** @typedef {{statuses: string[], codes?: string[], key?: string, ids?: string[], ranges?: Array<[number, number]>, except?: string[]}} ItemSelection without statuses: all; with ids or ranges: only those */
/** @typedef {{items: number, is_complete: boolean}} Counted */

export const MAX_IDS = 10_000; // per request
export const MAX_RANGES = 100;
const CANCELLABLE_STATUSES = ["pending", "retry_wait"];

/** The selection as a request body. @param {ItemSelection} what */
export function selectionRequest(what) {
  return JSON.parse(
    JSON.stringify({
      statuses: what.statuses.length ? what.statuses : undefined,
      error_codes: what.codes?.length ? what.codes : undefined,
      key: what.key || undefined,
      item_ids: what.ids?.length || !what.ranges?.length ? what.ids : undefined,
      ranges: what.ranges?.length ? what.ranges : undefined,
      except: what.except?.length ? what.except : undefined,
    }),
  );
}

/** Explains why a selection does not fit into one request. @param {import("../ui/selection.js").Selection} selection */
export function tooManyMessage(selection) {
  if (selection.isAll) return `Exclude at most ${formatNumber(MAX_IDS)} rows from all matching rows`;
  return `Select at most ${formatNumber(MAX_IDS)} single rows, or select all matching rows and exclude some`;
}

/** @param {any} job @param {ItemSelection} what @param {"reprocess" | "cancel" | "export"} to @param {AbortSignal} [signal] @param {object} [options] of the operation @returns {Promise<Counted>} */
export function countRows(job, what, to, signal, options = {}) {
  return api.post(`/v1/jobs/${job.id}/selection/count`, { to, ...selectionRequest(what), ...options }, { signal });
}

/** @param {Counted} counted */
export function countText({ items, is_complete }) {
  return `${is_complete ? "" : "at least "}${formatNumber(items)}`;
}

/** Describes the selection, with the time of the count. @param {any} job @param {ItemSelection} what */
export function describeSelection(job, what) {
  const parts = [];
  const ranged = (what.ranges ?? []).reduce((sum, [first, last]) => sum + last - first + 1, 0);
  if (what.ids) parts.push(`${pluralize(what.ids.length + ranged, "selected row")}`);
  if (what.statuses.length) parts.push(`status is ${what.statuses.map(humanize).join(" or ")}`);
  if (what.codes?.length) parts.push(`error code is ${what.codes.join(" or ")}`);
  if (what.key) parts.push(what.key.endsWith("*") ? `an input value starts with ${what.key.slice(0, -1)}` : `an input value is ${what.key}`);
  if (what.except?.length) parts.push(`except ${pluralize(what.except.length, "row")}`);
  return `Filter: ${parts.join(", ") || "all rows"}, job ${job.key}. Counted at ${formatTime(serverNow())}.`;
}

/** Cancels items that are not being processed yet. @param {any} job @param {ItemSelection} what @param {() => void} [done] */
export async function cancelRows(job, what, done) {
  const cancellable = { ...what, statuses: what.statuses.length ? what.statuses.filter((one) => CANCELLABLE_STATUSES.includes(one)) : CANCELLABLE_STATUSES, codes: [] };
  const found = await toastOnError(() => countRows(job, cancellable, "cancel"));
  if (!found) return;
  if (found.items === 0) return void showToast("Only waiting rows can be cancelled, and none of these rows is waiting");
  const isDone = await confirmDialog({
    title: `Cancel ${countText(found)} ${found.items === 1 ? "row" : "rows"}?`,
    content: [h("p", null, describeSelection(job, cancellable)), h("p", { class: "muted" }, "These rows will not be processed. You can run them again later. Rows in progress finish and keep their results.")],
    actionLabel: `Cancel ${countText(found)}`,
    isDanger: true,
    run: async () => {
      const operation = await api.post(`/v1/jobs/${job.id}/selection/cancel`, selectionRequest(cancellable));
      toastOnError(() => reportOperation(operation));
    },
  });
  if (isDone) done?.();
}
