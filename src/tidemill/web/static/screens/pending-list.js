// @ts-check
/**
 * Rows that wait or are in hand, those that have done so for longest first, each with why: of one job, or of all.
 * What is asked for stands in the address.
 */
import { api, me } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, counted, dayStart, localTimes, moment, percent, titleOf, wholeMoment } from "../core/format.js";
import { settled } from "../core/pace.js";
import { href, setQuery, word, words } from "../core/router.js";
import { computed, effect, onCleanup, scope as inScope, signal, untracked } from "../core/signal.js";
import { scope } from "../core/sse.js";
import { empty, recipe } from "../ui/empty.js";
import { makeGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { Selection } from "../ui/selection.js";
import { CursorSource } from "../ui/source.js";
import { OPEN_ITEMS, isClosed, setStatus, status } from "../ui/status.js";
import { tellIfFails, toast } from "../ui/toast.js";
import { openWaiting } from "./pending-item.js";
import { processNow } from "./process-now.js";

export const USUAL = ["pending", "processing"];
const MOST_IDS = 10_000;
/** @type {Record<string, [one: string, many: string]>} */
const SAID = { pending: ["row is pending", "rows are pending"], processing: ["row is in hand", "rows are in hand"], retry_wait: ["row waits for a retry", "rows wait for a retry"] };

/**
 * @typedef {object} PendingOptions
 * @property {import("../core/signal.js").Signal<any>} [job] of this one alone
 * @property {() => {id: string | null} | null} [chosenJob] a filter; null while it is not known yet
 * @property {(id: string) => any} jobOf what is known of a row's job
 * @property {() => boolean} [atLeast] whether that is not all of them
 * @property {(statuses: string[]) => number | null} open how many there are now, by the counts of jobs; null while they are not known
 */

/** The words of the address that this list follows, as the API has them. */
export function pendingFilter() {
  const [statuses, kind, from, to] = [words("statuses"), word("type"), word("from"), word("to")];
  return {
    statuses: computed(() => {
      const asked = statuses.value.filter((one) => OPEN_ITEMS.includes(one));
      return asked.length ? asked : USUAL;
    }),
    kind,
    from: computed(() => dayStart(from.value)),
    to: computed(() => dayStart(to.value, 1)),
  };
}

/** @param {PendingOptions} options */
export function pendingList(options) {
  const filter = pendingFilter();
  const box = h("div", { class: "screen" });
  let end = () => {};
  const asked = computed(() => {
    const chosen = options.job ? { id: options.job.peek().id } : options.chosenJob ? options.chosenJob() : { id: null };
    if (chosen === null) return "";
    const isOthers = options.job && options.job.peek().user_id !== me.value?.user_id;
    return JSON.stringify({ statuses: filter.statuses.value, job_type: filter.kind.value, from: filter.from.value, to: filter.to.value, job_id: chosen.id, user_id: isOthers ? "all" : scope.value });
  });
  effect(() => {
    const text = asked.value;
    end();
    if (text === "") return;
    untracked(() => {
      const [made, over] = inScope(() => list(JSON.parse(text), options));
      end = over;
      box.replaceChildren(made);
    });
  });
  onCleanup(() => end());
  return box;
}

/** @param {any} asked @param {PendingOptions} options */
function list(asked, options) {
  const source = new CursorSource(async (after, size, signal) => {
    const page = await api.get("/v1/pending", { ...asked, after, page_size: size }, signal);
    return { rows: page.items, next: page.next_page ?? null };
  });
  const selection = new Selection();
  const isDated = asked.from !== null || asked.to !== null;
  const open = () => options.open(asked.statuses);
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
    const ids = selection.list(MOST_IDS);
    if (ids === null) return void toast(`More than ${count(MOST_IDS)} rows cannot be sent at once: choose fewer`, "bad");
    if (await runNow(/** @type {string[]} */ (ids))) show();
  }

  const foot = h(
    "div",
    { class: () => (isEmpty() ? "grid-foot" : "grid-foot is-chosen") },
    h("span", { role: "status" }, () => (isEmpty() ? "" : `${counted(chosen(), "row")} selected`)),
    h("span", null, () => {
      if (!isEmpty()) return "";
      const loaded = (source.version.value, `${count(source.loaded)} loaded`);
      return isDated || open() === null ? `${loaded}, as of ${moment(at.value)}` : `${options.atLeast?.() ? "≥ " : ""}${count(open())} wait or are in hand · ${loaded}, as of ${moment(at.value)}`;
    }),
    h("button", { type: "button", class: "link", hidden: () => !isEmpty() || open() === seen.value, on: { click: show } }, "The list has changed – show"),
    h("span", { class: "spring" }),
    () =>
      isEmpty()
        ? options.job && processButton(options.job, show)
        : [h("button", { type: "button", class: "small main-act", on: { click: runChosen } }, icon("retry"), "Reprocess selected"), h("button", { type: "button", class: "small", on: { click: () => selection.clear() } }, "Clear")],
  );
  /** Cells are made while the grid is drawn, which is nobody's turn: what follows something there ends with the grid. @type {Array<() => void>} */
  const ends = [];
  onCleanup(() => ends.forEach((end) => end()));
  const blank = nothing(asked, options); // made here, as it follows the counts
  const grid = makeGrid({
    label: options.job ? `Open rows of ${options.job.peek().key}` : "Open rows of all jobs",
    source,
    selection,
    columns: columns(options.jobOf, ends),
    keyOf: (row) => row.id,
    nameOf: (row) => `item ${row.id}`,
    onOpen: (row) => openWaiting(row, { runNow: async () => (await runNow([row.id])) && show(), focusBack: () => grid.focus(), changed: show }),
    foot,
    whenEmpty: () => blank,
  });
  return grid.element;
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => void} show */
function processButton(job, show) {
  const isResting = () => ["paused", "cancelling"].includes(job.value.status);
  return h("button", { type: "button", class: "small", hidden: () => isClosed(job.value.status), disabled: isResting, title: () => (isResting() ? `The job is ${job.value.status}` : null), on: { click: () => processNow(job.peek(), show) } }, icon("play"), "Process now …");
}

/** Why there is nothing: because all is settled, or because of what is asked for. @param {any} asked @param {PendingOptions} options */
function nothing(asked, options) {
  const isNarrow = asked.from !== null || asked.to !== null || asked.job_type !== "" || (asked.job_id !== null && !options.job);
  const isDone = computed(() => !isNarrow && options.open(OPEN_ITEMS) === 0);
  // By the counts of jobs, which know of no days.
  const others = () => (asked.from !== null || asked.to !== null ? [] : OPEN_ITEMS.filter((one) => !asked.statuses.includes(one) && options.open([one])));
  const toldOthers = () => others().map((one) => `${options.atLeast?.() ? "at least " : ""}${counted(options.open([one]) ?? 0, ...SAID[one])}`).join(", ");
  const says = () => {
    if (others().length) return `No row that is ${asked.statuses.map(inWords).join(" or ")} was found. But ${toldOthers()}.`;
    if (!isDone.value) return "No row that fits these filters is open.";
    return options.job ? (options.job.value.ingest_complete ? "Every row is settled." : "Every row that was read so far is settled.") : "Every row is settled. Rows show up here as soon as somebody submits some, with why they wait.";
  };
  const howTo = recipe("From a file", "tidemill submit greet people.csv");
  effect(() => void (howTo.hidden = !isDone.value));
  return empty({
    title: () => (isDone.value ? "Nothing waits" : "Nothing matches this filter"),
    says,
    acts: [
      h("button", { type: "button", hidden: () => others().length === 0, on: { click: () => setQuery({ statuses: others() }) } }, "Show them"),
      asked.job_id ? null : howTo,
    ],
  });
}

/** @param {string} status of a row */
function inWords(status) {
  return { pending: "pending", processing: "in hand", retry_wait: "waiting for a retry" }[status] ?? status;
}

/** @param {(id: string) => any} jobOf @param {Array<() => void>} ends @returns {import("../ui/grid.js").Column[]} */
function columns(jobOf, ends) {
  return [
    // The end of a job's id: its beginning is a time, which jobs of the same minute share.
    { label: "Item ID", width: "5.7rem", show: (cell, row) => text(cell, `…${row.job_id.slice(-4)}:${row.seq}`, row.id, "mono") },
    { label: "Job ID", width: "8.6rem", show: showJob },
    { label: "Title / brand", width: "minmax(6rem, 1fr)", show: (cell, row) => text(cell, titleOf(row.input_summary)) },
    { label: "Status", width: "7rem", show: showStatus },
    { label: "Why it waits", width: "minmax(9rem, 1.5fr)", show: (cell, row) => text(cell, whyOf(row)) },
    { label: "Attempts", width: "4.8rem", align: "right", show: (cell, row) => text(cell, String(row.attempts)) },
    { label: "Locked by", width: "5.2rem", show: (cell, row) => text(cell, row.locked_by ?? "–") },
    { label: "Updated at", width: "5.6rem", show: (cell, row) => text(cell, moment(row.updated_at).split(" ")[0], wholeMoment(row.updated_at)) },
    { label: "Job type", width: "6.8rem", show: showKind },
    { label: "Progress", width: "4.9rem", show: (cell, row) => showProgress(cell, row, jobOf, ends) },
  ];
}

/** @param {any} row */
export function whyOf(row) {
  const isBackoff = row.status === "retry_wait" && row.why.startsWith("waits for its retry");
  return localTimes(row.why) + (isBackoff && row.error?.code ? `, after ${row.error.code}` : "");
}

/** @param {HTMLElement} cell @param {string} says @param {string} [title] @param {string} [look] */
function text(cell, says, title = says, look) {
  if (look) cell.classList.add(look);
  cell.textContent = says;
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
  if (shown) setStatus(shown, row.status);
  else cell.append(status(row.status));
}

/** @param {HTMLElement} cell @param {any} row */
function showKind(cell, row) {
  const chip = cell.firstElementChild ?? cell.appendChild(h("span", { class: "chip" }));
  chip.textContent = row.kind;
  cell.title = row.kind;
}

/** How far its job is, kept up to date while the row stands still. @param {HTMLElement} cell @param {any} row @param {(id: string) => any} jobOf @param {Array<() => void>} ends */
function showProgress(cell, row, jobOf, ends) {
  const known = /** @type {any} */ (cell);
  if (known.job) return void (known.job.value = row.job_id);
  known.job = signal(row.job_id);
  const pill = cell.appendChild(h("span", { class: "progress-pill number" }));
  const follow = () => {
    const counts = jobOf(known.job.value)?.counts;
    const done = counts ? settled(counts) : 0;
    pill.textContent = counts ? percent(done, counts.total) : "–";
    pill.style.setProperty("--part", String(counts && counts.total ? (done / counts.total) * 100 : 0));
  };
  ends.push(effect(follow));
}

/** Make rows due, and say what became of them. @param {string[]} ids @returns {Promise<boolean>} */
export async function runNow(ids) {
  const told = await tellIfFails(() => api.post("/v1/pending/run-now", { item_ids: ids }));
  if (!told) return false;
  const parts = [];
  if (told.due) parts.push(`${counted(told.due, "row")} ${told.due === 1 ? "is" : "are"} due now`);
  if (told.in_hand) parts.push(`${counted(told.in_hand, "row")} ${told.in_hand === 1 ? "is" : "are"} in the hands of a worker already`);
  if (told.others) parts.push(`${counted(told.others, "row")} ${told.others === 1 ? "waits" : "wait"} for ${told.others === 1 ? "its" : "their"} turn anyway, or ${told.others === 1 ? "is" : "are"} settled`);
  toast(parts.join("; "), told.due ? "ok" : "plain");
  return true;
}
