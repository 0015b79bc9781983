// @ts-check
/**
 * Items that are pending or processing, longest waiting first, each with the reason: of one job, or of all jobs.
 * The filters are query parameters.
 */
import { api, currentUser } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatDateTime, formatNumber, formatPercent, formatTime, pluralize, startOfDay, summaryText } from "../core/format.js";
import { ownerScope } from "../core/live-updates.js";
import { href, queryList, queryParam, setQuery } from "../core/router.js";
import { computed, effect, effectScope, onCleanup, signal, untracked } from "../core/signal.js";
import { countSettled } from "../core/throughput.js";
import { commandSnippet } from "../ui/copy-button.js";
import { createGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { emptyState } from "../ui/notices.js";
import { CursorRowSource } from "../ui/row-source.js";
import { Selection } from "../ui/selection.js";
import { OPEN_ITEM_STATUSES, isClosed, statusBadge, updateStatusBadge } from "../ui/status.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { openPendingItem, waitReason } from "./pending-item-drawer.js";
import { processNow } from "./process-now.js";

export const DEFAULT_STATUSES = ["pending", "processing"];
const MAX_IDS = 10_000;
/** @type {Record<string, [one: string, many: string]>} */
const STATUS_COUNTS = { pending: ["row is pending", "rows are pending"], processing: ["row is being processed", "rows are being processed"], retry_wait: ["row waits for a retry", "rows wait for a retry"] };

/**
 * @typedef {object} PendingOptions
 * @property {import("../core/signal.js").Signal<any>} [job] list only this job
 * @property {() => {id: string | null} | null} [chosenJob] the job filter; null while the job is being looked up
 * @property {(id: string) => any} jobOf what is known of the job of a row
 * @property {() => boolean} [isMinimum] whether the counts are minimums
 * @property {(statuses: string[]) => number | null} countOpen the current number of items, from job counts; null if unknown
 */

/** The filters of the list, in the format of the API. */
export function pendingFilter() {
  const [statuses, kind, from, to] = [queryList("statuses"), queryParam("type"), queryParam("from"), queryParam("to")];
  return {
    statuses: computed(() => {
      const known = statuses.value.filter((one) => OPEN_ITEM_STATUSES.includes(one));
      return known.length ? known : DEFAULT_STATUSES;
    }),
    kind,
    from: computed(() => startOfDay(from.value)),
    to: computed(() => startOfDay(to.value, 1)),
  };
}

/** @param {PendingOptions} options */
export function pendingList(options) {
  const filter = pendingFilter();
  const box = h("div", { class: "screen" });
  let end = () => {};
  const requestText = computed(() => {
    const chosen = options.job ? { id: options.job.peek().id } : options.chosenJob ? options.chosenJob() : { id: null };
    if (chosen === null) return "";
    const isOthers = options.job && options.job.peek().user_id !== currentUser.value?.user_id;
    return JSON.stringify({ statuses: filter.statuses.value, job_type: filter.kind.value, from: filter.from.value, to: filter.to.value, job_id: chosen.id, user_id: isOthers ? "all" : ownerScope.value });
  });
  effect(() => {
    const now = requestText.value;
    end();
    if (now === "") return;
    untracked(() => {
      const [made, over] = effectScope(() => pendingGrid(JSON.parse(now), options));
      end = over;
      box.replaceChildren(made);
    });
  });
  onCleanup(() => end());
  return box;
}

/** @param {any} params @param {PendingOptions} options */
function pendingGrid(params, options) {
  const source = new CursorRowSource(async (after, size, signal) => {
    const page = await api.get("/v1/pending", { ...params, after, page_size: size }, signal);
    return { rows: page.items, next: page.next_page ?? null };
  });
  const selection = new Selection();
  const isDated = params.from !== null || params.to !== null;
  const open = () => options.countOpen(params.statuses);
  const seen = signal(/** @type {number | null} */ (null));
  effect(() => {
    if (seen.value === null) seen.value = open();
  });
  const at = signal(Date.now());
  const show = () => {
    seen.value = untracked(open);
    at.value = Date.now();
    selection.clear();
    source.refresh();
  };
  const isEmpty = () => (selection.version.value, selection.isEmpty);
  const chosen = () => (selection.version.value, selection.size(0));

  async function runChosen() {
    const ids = selection.toKeys(MAX_IDS);
    if (ids === null) return void showToast(`Select at most ${formatNumber(MAX_IDS)} rows`, "bad");
    if (await runItemsNow(/** @type {string[]} */ (ids))) show();
  }

  const footer = h(
    "div",
    { class: () => (isEmpty() ? "grid-foot" : "grid-foot is-chosen") },
    h("span", { role: "status" }, () => (isEmpty() ? "" : `${pluralize(chosen(), "row")} selected`)),
    h("span", null, () => {
      if (!isEmpty()) return "";
      const loaded = (source.version.value, `${formatNumber(source.loaded)} loaded`);
      return isDated || open() === null ? `${loaded}, as of ${formatTime(at.value)}` : `${options.isMinimum?.() ? "≥ " : ""}${formatNumber(open())} waiting or processing · ${loaded}, as of ${formatTime(at.value)}`;
    }),
    h("button", { type: "button", class: "link", hidden: () => !isEmpty() || open() === seen.value, on: { click: show } }, "The list has changed – show changes"),
    h("span", { class: "spring" }),
    () =>
      isEmpty()
        ? options.job && processButton(options.job, show)
        : [h("button", { type: "button", class: "small main-act", on: { click: runChosen } }, icon("play"), "Run selected now"), h("button", { type: "button", class: "small", on: { click: () => selection.clear() } }, "Clear")],
  );
  /** The grid creates cells outside of any scope, so effects in cells have to be ended with the grid. @type {Array<() => void>} */
  const ends = [];
  onCleanup(() => ends.forEach((end) => end()));
  const blank = emptyNotice(params, options); // created in this scope, as it follows the counts
  const grid = createGrid({
    label: options.job ? `Open rows of ${options.job.peek().key}` : "Open rows of all jobs",
    source,
    selection,
    columns: columns(options.jobOf, ends),
    keyOf: (row) => row.id,
    nameOf: (row) => `item ${row.id}`,
    onOpen: (row) => openPendingItem(row, { runNow: async () => (await runItemsNow([row.id])) && show(), focusBack: () => grid.focus(), changed: show }),
    footer,
    emptyContent: () => blank,
  });
  return grid.element;
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => void} show */
function processButton(job, show) {
  const isResting = () => ["paused", "cancelling"].includes(job.value.status);
  return h("button", { type: "button", class: "small", hidden: () => isClosed(job.value.status), disabled: isResting, title: () => (isResting() ? `The job is ${job.value.status}` : null), on: { click: () => processNow(job.peek(), show) } }, icon("bolt"), "Process now …");
}

/** Explains an empty list: either all items are settled, or the filters match none. @param {any} params @param {PendingOptions} options */
function emptyNotice(params, options) {
  const isNarrow = params.from !== null || params.to !== null || params.job_type !== "" || (params.job_id !== null && !options.job);
  const isDone = computed(() => !isNarrow && options.countOpen(OPEN_ITEM_STATUSES) === 0);
  // From job counts, which have no dates.
  const others = () => (params.from !== null || params.to !== null ? [] : OPEN_ITEM_STATUSES.filter((one) => !params.statuses.includes(one) && options.countOpen([one])));
  const otherCounts = () => others().map((one) => `${options.isMinimum?.() ? "at least " : ""}${pluralize(options.countOpen([one]) ?? 0, ...STATUS_COUNTS[one])}`).join(", ");
  const explanation = () => {
    if (others().length) return `No rows are ${params.statuses.map(statusText).join(" or ")}, but ${otherCounts()}.`;
    if (!isDone.value) return "No open rows match these filters.";
    return options.job ? (options.job.value.ingest_complete ? "Every row is settled." : "Every row read so far is settled.") : "Every row is settled. New rows appear here with the reason why they wait.";
  };
  const howTo = commandSnippet("From a file", "tidemill submit greet people.csv");
  effect(() => void (howTo.hidden = !isDone.value));
  return emptyState({
    title: () => (isDone.value ? "No open rows" : "Nothing matches this filter"),
    text: explanation,
    actions: [
      h("button", { type: "button", hidden: () => others().length === 0, on: { click: () => setQuery({ statuses: others() }) } }, "Show them"),
      params.job_id ? null : howTo,
    ],
  });
}

/** @param {string} name of an item status */
function statusText(name) {
  return { pending: "pending", processing: "being processed", retry_wait: "waiting for a retry" }[name] ?? name;
}

/** @param {(id: string) => any} jobOf @param {Array<() => void>} ends @returns {import("../ui/grid.js").Column[]} */
function columns(jobOf, ends) {
  return [
    // The end of the job id, because its beginning is a time that jobs of the same minute share.
    { label: "Item ID", width: "5.7rem", show: (cell, row) => setCellText(cell, `…${row.job_id.slice(-4)}:${row.seq}`, row.id, "mono") },
    { label: "Job ID", width: "8.6rem", show: showJob },
    { label: "Input", width: "minmax(6rem, 1fr)", show: (cell, row) => setCellText(cell, summaryText(row.input_summary)) },
    { label: "Status", width: "7rem", show: showStatus },
    { label: "Wait reason", width: "minmax(9rem, 1.5fr)", show: (cell, row) => setCellText(cell, waitReason(row)) },
    { label: "Attempts", width: "4.8rem", align: "right", show: (cell, row) => setCellText(cell, String(row.attempts)) },
    { label: "Worker", width: "5.2rem", show: (cell, row) => setCellText(cell, row.locked_by ?? "–") },
    { label: "Updated at", width: "5.6rem", show: (cell, row) => setCellText(cell, formatTime(row.updated_at).split(" ")[0], formatDateTime(row.updated_at)) },
    { label: "Kind", width: "6.8rem", show: showKind },
    { label: "Progress", width: "4.9rem", show: (cell, row) => showProgress(cell, row, jobOf, ends) },
  ];
}

/** @param {HTMLElement} cell @param {string} text @param {string} [title] @param {string} [className] */
function setCellText(cell, text, title = text, className) {
  if (className) cell.classList.add(className);
  cell.textContent = text;
  cell.title = title;
}

/** @param {HTMLElement} cell @param {any} row */
function showJob(cell, row) {
  const link = /** @type {HTMLAnchorElement} */ (cell.firstElementChild ?? cell.appendChild(h("a", { class: "mono", tabindex: "-1" })));
  link.href = href(`/jobs/${row.job_key}`);
  link.title = "Go to job";
  link.textContent = row.job_key;
}

/** @param {HTMLElement} cell @param {any} row */
function showStatus(cell, row) {
  const shown = /** @type {HTMLElement | null} */ (cell.firstElementChild);
  if (shown) updateStatusBadge(shown, row.status);
  else cell.append(statusBadge(row.status));
}

/** @param {HTMLElement} cell @param {any} row */
function showKind(cell, row) {
  const chip = cell.firstElementChild ?? cell.appendChild(h("span", { class: "chip" }));
  chip.textContent = row.kind;
  cell.title = row.kind;
}

/** The progress of the item's job, updated while the row stays. @param {HTMLElement} cell @param {any} row @param {(id: string) => any} jobOf @param {Array<() => void>} ends */
function showProgress(cell, row, jobOf, ends) {
  const known = /** @type {any} */ (cell);
  if (known.job) return void (known.job.value = row.job_id);
  known.job = signal(row.job_id);
  const pill = cell.appendChild(h("span", { class: "progress-pill number" }));
  const follow = () => {
    const counts = jobOf(known.job.value)?.counts;
    const done = counts ? countSettled(counts) : 0;
    pill.textContent = counts ? formatPercent(done, counts.total) : "–";
    pill.style.setProperty("--part", String(counts && counts.total ? (done / counts.total) * 100 : 0));
  };
  ends.push(effect(follow));
}

/** Makes items due now and shows the result. @param {string[]} ids @returns {Promise<boolean>} */
async function runItemsNow(ids) {
  const result = await toastOnError(() => api.post("/v1/pending/run-now", { item_ids: ids }));
  if (!result) return false;
  const parts = [];
  if (result.due) parts.push(`${pluralize(result.due, "row")} ${result.due === 1 ? "is" : "are"} due now`);
  if (result.in_hand) parts.push(`${pluralize(result.in_hand, "row")} ${result.in_hand === 1 ? "is" : "are"} already being processed`);
  if (result.others) parts.push(`${pluralize(result.others, "row")} ${result.others === 1 ? "is" : "are"} already due or settled`);
  showToast(parts.join("; "), result.due ? "ok" : "plain");
  return true;
}
