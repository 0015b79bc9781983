// @ts-check
/** Retries failed items (dead letters), a single one first or all that match; dismisses and restores them. */
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
import { CATEGORY_LABELS, reportOperation } from "./operation-text.js";

/** @typedef {{error_codes?: string[], category?: string, group?: string, kind?: string, job_id?: string, from?: string, to?: string}} DeadFilter as in the API */
/** @typedef {{n: number, isExact: boolean}} Counted */
/** @typedef {{dry_run: number, invalid_row: number, no_worker: number, poison: number, not_retryable: number, retryable: number, is_complete: boolean}} Forecast */
/** @typedef {{except?: string[], ids?: string[], job?: string, title?: string, done?: () => void}} SelectionOptions `title` describes the group of the filter */

const MAX_WAIT_MS = 90_000;
/** What a retry will probably do, by reason. @type {Array<[keyof Forecast, (rows: string) => string]>} */
const FORECAST_TEXTS = [
  ["dry_run", (rows) => `${rows} of dry runs: the same input fails again, and a dry run writes nothing. Fix the rows first, or promote the dry run to import the valid rows.`],
  ["invalid_row", (rows) => `${rows} with invalid values in imports: the same input fails again. Fix the rows first.`],
  ["no_worker", (rows) => `${rows} without a worker: no running worker handles their kind, so they wait until one starts.`],
  ["poison", (rows) => `${rows} that crashed the worker process three times: a retry may crash it again.`],
  ["not_retryable", (rows) => `${rows} with a permanent error: unless its cause is fixed, a retry fails again.`],
];

/** Describes the filter. @param {DeadFilter} filter @param {SelectionOptions} options */
function describeFilter(filter, options) {
  const parts = [];
  if (options.title) parts.push(`error is ${options.title}`);
  else if (filter.error_codes?.length) parts.push(`error code is ${filter.error_codes.join(" or ")}`);
  else if (filter.category) parts.push(/** @type {any} */ (CATEGORY_LABELS)[filter.category]);
  if (filter.kind) parts.push(`kind is ${filter.kind}`);
  if (filter.job_id) parts.push(`job is ${options.job ?? filter.job_id}`);
  if (filter.from) parts.push(`failed at or after ${formatTime(filter.from)}`);
  if (filter.to) parts.push(`failed before ${formatTime(filter.to)}`);
  parts.push(ownerScope.peek() === "all" ? "jobs of all users" : "your jobs");
  return parts.join(", ");
}

/** @param {DeadFilter} filter @param {SelectionOptions} options */
function selectionBody(filter, { ids, except = [] }) {
  return { ...(ids ? { item_ids: ids } : { all_matching: true, filter, except }), user_id: ownerScope.peek() };
}

/** @param {DeadFilter} filter @param {SelectionOptions} options @returns {Promise<Forecast>} */
function fetchForecast(filter, options) {
  return api.post("/v1/dead-letters/forecast", selectionBody(filter, options));
}

/** The rows that will probably not succeed, by reason; null if there are none. @param {Forecast} forecast */
function forecastNotice(forecast) {
  const lines = FORECAST_TEXTS.filter(([name]) => forecast[name]).map(([name, text]) => text(pluralize(Number(forecast[name]), "row")));
  if (lines.length === 0) return null;
  return h(
    "div",
    { class: "notice stack tight", role: "note" },
    h("p", null, h("strong", null, forecast.retryable ? `A retry may succeed for ${pluralize(forecast.retryable, "row")}, but probably not for these:` : "A retry will probably not succeed for these rows:")),
    h("ul", null, lines.map((line) => h("li", null, line))),
    forecast.is_complete ? null : h("p", { class: "hint" }, "Counted in the newest 10,000 matching rows."),
  );
}

/**
 * The failed rows of a job that will probably fail again when they are retried; null if there are none.
 * @param {any} job
 * @param {import("./selection-actions.js").ItemSelection} what
 */
export async function retryNotice(job, what) {
  if (!what.statuses.includes("failed")) return null;
  const isPart = Boolean(what.key || what.ranges?.length); // a forecast has no such filter
  const filter = { job_id: job.id, ...(what.codes?.length ? { error_codes: what.codes } : {}) };
  const body = isPart ? selectionBody(filter, {}) : selectionBody(filter, what);
  const forecast = await api.post("/v1/dead-letters/forecast", { ...body, user_id: String(job.user_id) });
  if (!isPart) return forecastNotice(forecast);
  return forecast.invalid_row || forecast.dry_run ? h("p", { class: "notice", role: "note" }, "Import rows with invalid values: the same input fails again. Fix the rows first.") : null;
}

/**
 * @param {DeadFilter} filter
 * @param {SelectionOptions} [options]
 */
export async function redriveAll(filter, options = {}) {
  const { ids, except = [] } = options;
  const forecast = await fetchForecast(filter, options);
  const n = FORECAST_TEXTS.reduce((sum, [name]) => sum + Number(forecast[name]), forecast.retryable) + except.length;
  const many = `${forecast.is_complete ? "" : "at least "}${formatNumber(n)}`;
  const exceptText = except.length ? ` except ${formatNumber(except.length)}` : "";
  let keeps = false;
  const choice = (/** @type {boolean} */ value, /** @type {string} */ caption) => h("label", { class: "choice" }, h("input", { type: "radio", name: "attempts", checked: value === keeps, on: { change: () => (keeps = value) } }), caption);
  return confirmDialog({
    title: exceptText ? `Retry all matching rows${exceptText}?` : `Retry ${many} ${n === 1 ? "row" : "rows"}?`,
    content: [
      h("p", null, ids ? `${pluralize(n, "selected row")}.` : `Filter: ${describeFilter(filter, options)}. Matching rows at ${formatTime(serverNow())}: ${many}${exceptText ? `; ${pluralize(except.length, "of them is", "of them are")} excluded` : ""}.`),
      forecastNotice(forecast),
      h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, "Attempts"), choice(false, "Reset attempts"), choice(true, "Keep attempts, and leave permanent failures as they are")),
      h("p", { class: "muted" }, "The handler runs again with the same input, so its side effects can repeat. Rows that fail again return to this list."),
    ],
    actionLabel: exceptText ? "Retry the others" : `Retry ${many}`,
    run: async () => {
      const operation = await api.post("/v1/dead-letters/redrive", { ...selectionBody(filter, options), reset_attempts: !keeps });
      reportOperation(operation).then(() => options.done?.(), () => options.done?.());
    },
  });
}

/**
 * Dismisses failed items, or restores dismissed ones. Asks first if a filter selects them.
 * @param {"dismiss" | "restore"} verb
 * @param {DeadFilter} filter
 * @param {SelectionOptions & {matching?: Counted}} options
 */
export async function setDismissed(verb, filter, options) {
  const send = async () => {
    const operation = await api.post(`/v1/dead-letters/${verb}`, selectionBody(filter, options));
    reportOperation(operation).then(() => options.done?.(), () => options.done?.());
  };
  if (options.ids) return void (await send());
  const { n, isExact } = options.matching ?? { n: 0, isExact: false };
  const label = verb === "dismiss" ? "Dismiss" : "Restore";
  const many = `${isExact ? "" : "at least "}${pluralize(n - (options.except?.length ?? 0), "row")}`;
  await confirmDialog({
    title: `${label} ${many}?`,
    content: [h("p", null, `Filter: ${describeFilter(filter, options)}.`), h("p", { class: "muted" }, verb === "dismiss" ? "The rows leave this list. Their jobs and counts do not change. You can restore them under “Dismissed”." : "The rows return to the list of failed items.")],
    actionLabel: `${label} ${many}`,
    run: send,
  });
}

/**
 * Retries the newest matching failed item, and waits for its result.
 * @param {DeadFilter} filter
 * @param {{row?: any, job?: string, title?: string, done?: () => void, onResult?: (row: any, item: any) => void}} [options] `onResult` replaces `done` for a single row; its item is null if the result is unknown
 */
export async function redriveOne(filter, options = {}) {
  const row = options.row ?? (await api.get("/v1/dead-letters", { ...filter, user_id: ownerScope.peek(), page_size: 1 })).items[0];
  if (!row) throw new ApiError(404, { detail: "No matching failed item is left" });
  const forecast = await fetchForecast(filter, { ids: [row.id] });
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
      forecastNotice(forecast),
      h("p", { role: "status" }, () => (item.value ? [statusBadge(item.value.status), " "] : null), status),
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Close"), () => (!isSent.value ? h("button", { type: "submit", class: "main-act", autofocus: true, on: { click: go } }, "Retry this row") : item.value && item.value.status !== "failed" ? h("button", { type: "submit", class: "main-act", on: { click: () => close(true) } }, "Retry the others …") : null)),
    ];
  });
  if (isRequeued && options.onResult) options.onResult(row, latestItem);
  else if (isRequeued) options.done?.();
  if (wantsAll) await redriveAll(filter, { job: options.job, title: options.title, done: options.done });
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
