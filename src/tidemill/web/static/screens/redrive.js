// @ts-check
/** Retries failed items (dead letters): a single one first, or all that match. */
import { ApiError, api, serverNow } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatNumber, formatTime, humanize, pluralize } from "../core/format.js";
import { stringify } from "../core/json.js";
import { ownerScope } from "../core/live-updates.js";
import { pollUntil } from "../core/polling.js";
import { href } from "../core/router.js";
import { onCleanup, signal } from "../core/signal.js";
import { confirmDialog, showDialog } from "../ui/dialog.js";
import { statusBadge } from "../ui/status.js";
import { reportOperation } from "./operation-text.js";

/** @typedef {{error_codes?: string[], kind?: string, job_id?: string, from?: string, to?: string}} DeadFilter as in the API */
/** @typedef {{n: number, isExact: boolean}} Counted */

const MAX_WAIT_MS = 90_000;
const MAX_COUNT_PAGES = 6;

/** Describes the filter. @param {DeadFilter} filter @param {string} [job] its key */
function describeFilter(filter, job) {
  const parts = [];
  if (filter.error_codes?.length) parts.push(`cause is ${filter.error_codes.join(" or ")}`);
  if (filter.kind) parts.push(`kind is ${filter.kind}`);
  if (filter.job_id) parts.push(`job is ${job ?? filter.job_id}`);
  if (filter.from) parts.push(`failed from ${formatTime(filter.from)}`);
  if (filter.to) parts.push(`failed before ${formatTime(filter.to)}`);
  parts.push(ownerScope.peek() === "all" ? "jobs of all users" : "your jobs");
  return parts.join(", ");
}

/** Counts matching dead letters: from the counters, or by paging if the filter has dates. @param {DeadFilter} filter @returns {Promise<Counted>} */
async function countDeadLetters(filter) {
  const owner = { user_id: ownerScope.peek() };
  if (!filter.from && !filter.to) {
    const causes = await api.get("/v1/dead-letters/causes", { ...owner, kind: filter.kind, job_id: filter.job_id });
    const fitting = causes.filter((/** @type {any} */ one) => !filter.error_codes?.length || filter.error_codes.includes(one.code));
    return { n: fitting.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.count, 0), isExact: true };
  }
  let [n, after] = [0, /** @type {string | null} */ (null)];
  for (let pages = 0; pages < MAX_COUNT_PAGES; pages += 1) {
    const page = await api.get("/v1/dead-letters", { ...owner, ...filter, page_size: 500, after });
    n += page.items.length;
    after = page.next_page ?? null;
    if (after === null) return { n, isExact: true };
  }
  return { n, isExact: false };
}

/**
 * @param {DeadFilter} filter
 * @param {{except?: string[], ids?: string[], job?: string, done?: () => void}} [options]
 */
export async function redriveAll(filter, options = {}) {
  const { ids, except = [] } = options;
  const matching = ids ? { n: ids.length, isExact: true } : await countDeadLetters(filter);
  const { n } = matching;
  const many = `${matching.isExact ? "" : "at least "}${formatNumber(n)}`;
  const exceptText = except.length ? ` except ${formatNumber(except.length)}` : "";
  let keeps = false;
  const choice = (/** @type {boolean} */ value, /** @type {string} */ caption) => h("label", { class: "choice" }, h("input", { type: "radio", name: "attempts", checked: value === keeps, on: { change: () => (keeps = value) } }), caption);
  return confirmDialog({
    title: exceptText ? `Retry all matching rows${exceptText}?` : `Retry ${many} ${n === 1 ? "row" : "rows"}?`,
    content: [
      h("p", null, ids ? `${pluralize(n, "selected row")}.` : `Filter: ${describeFilter(filter, options.job)}. Matching rows at ${formatTime(serverNow())}: ${many}${exceptText ? `; ${pluralize(except.length, "of them is", "of them are")} excluded` : ""}.`),
      h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, "Attempts"), choice(false, "Reset attempts"), choice(true, "Only rows with attempts left")),
      h("p", { class: "muted" }, "The handler runs again with the same input, so its side effects can repeat. Rows that fail again return to this list."),
    ],
    actionLabel: exceptText ? "Retry the others" : `Retry ${many}`,
    run: async () => {
      const what = ids ? { item_ids: ids } : { all_matching: true, filter, except };
      const operation = await api.post("/v1/dead-letters/redrive", { ...what, reset_attempts: !keeps, user_id: ownerScope.peek() });
      reportOperation(operation).then(() => options.done?.(), () => options.done?.());
    },
  });
}

/**
 * Retries the newest matching failed item, and waits for its result.
 * @param {DeadFilter} filter
 * @param {{row?: any, job?: string, done?: () => void, onResult?: (row: any, item: any) => void}} [options] `onResult` replaces `done` for a single row; its item is null if the result is unknown
 */
export async function redriveOne(filter, options = {}) {
  const row = options.row ?? (await api.get("/v1/dead-letters", { ...filter, user_id: ownerScope.peek(), page_size: 1 })).items[0];
  if (!row) throw new ApiError(404, { detail: "No matching failed item is left" });
  let isRequeued = false;
  /** The latest state of the item. @type {any} */
  let latestItem = null;
  const wantsAll = await showDialog("Retry one row first", (close, isFirm) => {
    const item = signal(/** @type {any} */ (null));
    const status = signal("");
    const isSent = signal(false);
    const stop = new AbortController();
    onCleanup(() => stop.abort());

    async function go() {
      isSent.value = true;
      isFirm.value = true;
      status.value = "Requeueing the row …";
      try {
        await api.post("/v1/dead-letters/redrive", { item_ids: [row.id], user_id: ownerScope.peek() });
        isRequeued = true;
        isFirm.value = false;
        status.value = "Requeued. Waiting for the result …";
        item.value = await waitForItem(row, stop.signal, (found) => (latestItem = found));
        status.value = item.value ? resultText(item.value) : "The row is not settled yet. Check that a worker is running. The retry continues after you close this dialog.";
      } catch (error) {
        if (!stop.signal.aborted) status.value = /** @type {Error} */ (error).message;
        isFirm.value = false;
      }
    }
    return [
      h("p", null, `Row ${formatNumber(row.seq + 1)} of `, h("a", { href: href(`/jobs/${row.job_key}`) }, row.job_key), ` failed ${row.attempts} ${row.attempts === 1 ? "time" : "times"}: `, h("strong", null, row.error?.code ?? "failed"), ` ${row.error?.reason ?? ""}`),
      h("pre", { class: "json", tabindex: "0" }, stringify(row.input_summary, 2)),
      h("p", { role: "status" }, () => (item.value ? [statusBadge(item.value.status), " "] : null), status),
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Close"), () => (!isSent.value ? h("button", { type: "submit", class: "main-act", autofocus: true, on: { click: go } }, "Retry this row") : item.value && item.value.status !== "failed" ? h("button", { type: "submit", class: "main-act", on: { click: () => close(true) } }, "Retry the others …") : null)),
    ];
  });
  if (isRequeued && options.onResult) options.onResult(row, latestItem);
  else if (isRequeued) options.done?.();
  if (wantsAll) await redriveAll(filter, { job: options.job, done: options.done });
}

/** @param {any} item */
function resultText(item) {
  if (item.status === "done") return "The retry succeeded.";
  if (item.status !== "failed") return `The row did not fail again, but it is ${humanize(item.status)}${item.error?.reason ? `: ${item.error.reason}` : ""}.`;
  return `Failed again: ${item.error?.code ?? ""} ${item.error?.reason ?? ""}`;
}

/** @param {any} row @param {AbortSignal} stop @param {(item: any) => void} step */
async function waitForItem(row, stop, step) {
  const begun = Date.now();
  const isOpen = (/** @type {any} */ item) => ["pending", "processing", "retry_wait"].includes(item.status);
  const item = await pollUntil(() => api.get(`/v1/jobs/${row.job_id}/items/${row.seq}`, {}, stop), (one) => !isOpen(one) || Date.now() - begun > MAX_WAIT_MS, { signal: stop, onStep: step });
  return isOpen(item) ? null : item;
}
