// @ts-check
/** Sending dead letters round again: one of them first, then all that match. */
import { ApiError, api, now } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, counted, moment, words } from "../core/format.js";
import { until } from "../core/load.js";
import { href } from "../core/router.js";
import { onCleanup, signal } from "../core/signal.js";
import { scope } from "../core/sse.js";
import { confirmDialog, showDialog } from "../ui/dialog.js";
import { stringify } from "../core/json.js";
import { status } from "../ui/status.js";
import { tellOperation } from "./operation-words.js";

/** @typedef {{error_codes?: string[], kind?: string, job_id?: string, from?: string, to?: string}} DeadFilter as the API has it */
/** @typedef {{n: number, isExact: boolean}} Counted */

const PATIENCE_MS = 90_000;
const COUNT_PAGES = 6;

/** The filter in words. @param {DeadFilter} filter @param {string} [job] its key */
export function filterWords(filter, job) {
  const parts = [];
  if (filter.error_codes?.length) parts.push(`cause is ${filter.error_codes.join(" or ")}`);
  if (filter.kind) parts.push(`kind is ${filter.kind}`);
  if (filter.job_id) parts.push(`job is ${job ?? filter.job_id}`);
  if (filter.from) parts.push(`failed from ${moment(filter.from)}`);
  if (filter.to) parts.push(`failed before ${moment(filter.to)}`);
  parts.push(scope.peek() === "all" ? "everybody's jobs" : "your jobs");
  return parts.join(", ");
}

/** How many match, by the service: from its sums, or by looking through them when there are dates. @param {DeadFilter} filter @returns {Promise<Counted>} */
export async function countMatching(filter) {
  const whose = { user_id: scope.peek() };
  if (!filter.from && !filter.to) {
    const causes = await api.get("/v1/dead-letters/causes", { ...whose, kind: filter.kind, job_id: filter.job_id });
    const fitting = causes.filter((/** @type {any} */ one) => !filter.error_codes?.length || filter.error_codes.includes(one.code));
    return { n: fitting.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.count, 0), isExact: true };
  }
  let [n, after] = [0, /** @type {string | null} */ (null)];
  for (let pages = 0; pages < COUNT_PAGES; pages += 1) {
    const page = await api.get("/v1/dead-letters", { ...whose, ...filter, page_size: 500, after });
    n += page.items.length;
    after = page.next_page ?? null;
    if (after === null) return { n, isExact: true };
  }
  return { n, isExact: false };
}

/**
 * @param {DeadFilter} filter
 * @param {{except?: string[], ids?: string[], job?: string, done?: () => void}} [how]
 */
export async function redriveAll(filter, how = {}) {
  const { ids, except = [] } = how;
  const counted_ = ids ? { n: ids.length, isExact: true } : await countMatching(filter);
  const { n } = counted_;
  const many = `${counted_.isExact ? "" : "at least "}${count(n)}`;
  const but = except.length ? ` but ${counted(except.length, "row")}` : "";
  let keeps = false;
  const choice = (/** @type {boolean} */ value, /** @type {string} */ says) => h("label", { class: "choice" }, h("input", { type: "radio", name: "attempts", checked: value === keeps, on: { change: () => (keeps = value) } }), says);
  return confirmDialog({
    title: but ? `Redrive all that match${but}?` : `Redrive ${many} ${n === 1 ? "row" : "rows"}?`,
    says: [
      h("p", null, ids ? `${counted(n, "chosen row")}.` : `Filter: ${filterWords(filter, how.job)}. The service counted ${many} that match at ${moment(now())}${but ? `; ${counted(except.length, "of them is", "of them are")} left out` : ""}.`),
      h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, "Attempts"), choice(false, "Count from the beginning again"), choice(true, "Only rows that have attempts left")),
      h("p", { class: "muted" }, "The handler is called again with the same input; what it does elsewhere may be repeated. What fails again comes back here."),
    ],
    act: but ? "Redrive the others" : `Redrive ${many}`,
    run: async () => {
      const what = ids ? { item_ids: ids } : { all_matching: true, filter, except };
      const operation = await api.post("/v1/dead-letters/redrive", { ...what, reset_attempts: !keeps, user_id: scope.peek() });
      tellOperation(operation).then(() => how.done?.(), () => how.done?.());
    },
  });
}

/**
 * Send the newest one that matches round again, and wait for what becomes of it.
 * @param {DeadFilter} filter
 * @param {{row?: any, job?: string, done?: () => void, tried?: (row: any, item: any) => void}} [how] `tried` instead of `done`, of the one: what it is now, null if nobody said
 */
export async function tryOne(filter, how = {}) {
  const row = how.row ?? (await api.get("/v1/dead-letters", { ...filter, user_id: scope.peek(), page_size: 1 })).items[0];
  if (!row) throw new ApiError(404, { detail: "no dead letter matches any more" });
  let isSent = false;
  /** What the service last said of it. @type {any} */
  let became = null;
  const wantsAll = await showDialog("Try one row first", (close, isFirm) => {
    const item = signal(/** @type {any} */ (null));
    const says = signal("");
    const isAsked = signal(false);
    const stop = new AbortController();
    onCleanup(() => stop.abort());

    async function go() {
      isAsked.value = true;
      isFirm.value = true;
      says.value = "Sending it round again …";
      try {
        await api.post("/v1/dead-letters/redrive", { item_ids: [row.id], user_id: scope.peek() });
        isSent = true;
        isFirm.value = false;
        says.value = "Sent round again; waiting for what becomes of it …";
        item.value = await settledItem(row, stop.signal, (found) => (became = found));
        says.value = item.value ? verdict(item.value) : "It is not settled yet: no worker may be at it. It goes on without this dialog.";
      } catch (error) {
        if (!stop.signal.aborted) says.value = /** @type {Error} */ (error).message;
        isFirm.value = false;
      }
    }
    return [
      h("p", null, `Row ${count(row.seq + 1)} of `, h("a", { href: href(`/jobs/${row.job_key}`) }, row.job_key), ` failed ${row.attempts} ${row.attempts === 1 ? "time" : "times"}: `, h("strong", null, row.error?.code ?? "failed"), ` ${row.error?.reason ?? ""}`),
      h("pre", { class: "json", tabindex: "0" }, stringify(row.input_summary, 2)),
      h("p", { role: "status" }, () => (item.value ? [status(item.value.status), " "] : null), says),
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Close"), () => (!isAsked.value ? h("button", { type: "submit", class: "main-act", autofocus: true, on: { click: go } }, "Redrive this row") : item.value && item.value.status !== "failed" ? h("button", { type: "submit", class: "main-act", on: { click: () => close(true) } }, "Now the others …") : null)),
    ];
  });
  if (isSent && how.tried) how.tried(row, became);
  else if (isSent) how.done?.();
  if (wantsAll) await redriveAll(filter, { job: how.job, done: how.done });
}

/** @param {any} item */
function verdict(item) {
  if (item.status === "done") return "It went well this time.";
  if (item.status !== "failed") return `It did not fail this time, but it is ${words(item.status)}${item.error?.reason ? `: ${item.error.reason}` : ""}.`;
  return `It failed again: ${item.error?.code ?? ""} ${item.error?.reason ?? ""}`;
}

/** @param {any} row @param {AbortSignal} stop @param {(item: any) => void} step */
async function settledItem(row, stop, step) {
  const begun = Date.now();
  const isOpen = (/** @type {any} */ item) => ["pending", "processing", "retry_wait"].includes(item.status);
  const item = await until(() => api.get(`/v1/jobs/${row.job_id}/items/${row.seq}`, {}, stop), (one) => !isOpen(one) || Date.now() - begun > PATIENCE_MS, { signal: stop, step });
  return isOpen(item) ? null : item;
}
