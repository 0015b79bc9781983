// @ts-check
/** What is chosen of a job's rows, in the API's words and in ours; how many that are is the service's to say. */
import { api, now } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, counted, moment, words } from "../core/format.js";
import { confirmDialog } from "../ui/dialog.js";
import { tellIfFails, toast } from "../ui/toast.js";
import { tellOperation } from "./operation-words.js";

/** @typedef {{statuses: string[], codes?: string[], key?: string, ids?: string[], ranges?: Array<[number, number]>, except?: string[]}} Chosen none of the statuses: all; with ids or ranges, those and no others */
/** @typedef {{items: number, is_complete: boolean}} Counted */

export const IDS_MAX = 10_000; // of one request
export const RANGES_MAX = 100;
const WAITING = ["pending", "retry_wait"];

/** As the body of a request. @param {Chosen} what */
export function selectionBody(what) {
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

/** Why a selection cannot be named in one request. @param {import("../ui/selection.js").Selection} selection */
export function tooMany(selection) {
  if (selection.isAll) return `At most ${count(IDS_MAX)} rows can be taken out of all that match`;
  return `At most ${count(IDS_MAX)} single rows at once; or select all that match, and take out those that should stay`;
}

/** @param {any} job @param {Chosen} what @param {"reprocess" | "cancel" | "export"} to @param {AbortSignal} [signal] @returns {Promise<Counted>} */
export function countRows(job, what, to, signal) {
  return api.post(`/v1/jobs/${job.id}/selection/count`, { to, ...selectionBody(what) }, { signal });
}

/** @param {Counted} counted */
export function many({ items, is_complete }) {
  return `${is_complete ? "" : "at least "}${count(items)}`;
}

/** The filter as a sentence, with when it was counted. @param {any} job @param {Chosen} what */
export function selectionWords(job, what) {
  const parts = [];
  const ranged = (what.ranges ?? []).reduce((sum, [first, last]) => sum + last - first + 1, 0);
  if (what.ids) parts.push(`${counted(what.ids.length + ranged, "chosen row")}`);
  if (what.statuses.length) parts.push(`status is ${what.statuses.map(words).join(" or ")}`);
  if (what.codes?.length) parts.push(`cause is ${what.codes.join(" or ")}`);
  if (what.key) parts.push(what.key.endsWith("*") ? `key begins with ${what.key.slice(0, -1)}` : `key is ${what.key}`);
  if (what.except?.length) parts.push(`but ${counted(what.except.length, "row")}`);
  return `Filter: ${parts.join(", ") || "none, all rows"}, job ${job.key}. The service counted them at ${moment(now())}.`;
}

/** Rows that wait are not processed any more. @param {any} job @param {Chosen} what @param {() => void} [done] */
export async function cancelRows(job, what, done) {
  const asked = { ...what, statuses: what.statuses.length ? what.statuses.filter((one) => WAITING.includes(one)) : WAITING, codes: [] };
  const found = await tellIfFails(() => countRows(job, asked, "cancel"));
  if (!found) return;
  if (found.items === 0) return void toast("None of these rows waits: what is in hand or settled cannot be cancelled");
  const isDone = await confirmDialog({
    title: `Cancel ${many(found)} ${found.items === 1 ? "row" : "rows"}?`,
    says: [h("p", null, selectionWords(job, asked)), h("p", { class: "muted" }, "They will not be processed, and can be reprocessed later. What is in hand finishes and keeps its results.")],
    act: `Cancel ${many(found)}`,
    isDanger: true,
    run: async () => {
      const operation = await api.post(`/v1/jobs/${job.id}/selection/cancel`, selectionBody(asked));
      tellIfFails(() => tellOperation(operation));
    },
  });
  if (isDone) done?.();
}
