// @ts-check
/** Jobs of one kind, the newest first, live: what the lists of imports, exports and distributions share. */
import { api, me } from "../core/api.js";
import { h } from "../core/dom.js";
import { count } from "../core/format.js";
import { load } from "../core/load.js";
import { query, word, words } from "../core/router.js";
import { batch, effect, signal } from "../core/signal.js";
import { onJobs, scope } from "../core/sse.js";
import { empty, failure, waiting } from "../ui/empty.js";
import { clearFilters, dateField, searchField, statusToggles } from "../ui/filter-bar.js";
import { icon } from "../ui/icons.js";
import { moreButton } from "../ui/more.js";
import { JOB_STATUSES, isClosed } from "../ui/status.js";

export const FILTERS = ["q", "statuses", "from", "to"];
const USUAL = ["running", "completed", "completed_with_errors", "failed", "cancelled"];
const PAGE = 50;

/**
 * @param {string} path of the API, as in `/v1/imports`
 * @param {string} name of the list in its answers
 * @param {string} kind of its jobs
 */
export function listing(path, name, kind) {
  const statuses = words("statuses");
  const [q, from, to] = ["q", "from", "to"].map(word);
  const entries = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));
  const fresh = signal(/** @type {Set<string>} */ (new Set()));

  const asked = () => ({ q: q.value, statuses: statuses.value, user_id: scope.value, created_from: day(from.value), created_to: day(to.value, 1), page_size: PAGE });
  const first = load((signal) => api.get(path, asked(), signal));
  effect(() => {
    const page = first.data.value;
    if (page === null) return;
    batch(() => {
      entries.value = page[name];
      next.value = page.next_page ?? null;
      fresh.value = new Set();
    });
  });

  /** @param {any} entry */
  const put = (entry) => (entries.value = entries.peek().map((one) => (one.job_id === entry.job_id ? entry : one)));
  onJobs((jobs) => {
    for (const job of jobs) {
      if (job.kind !== kind) continue;
      const known = entries.peek().find((one) => one.job_id === job.id);
      if (known === undefined) {
        if (isNew(job)) fresh.value = new Set([...fresh.peek(), job.id]);
        continue;
      }
      const told = () => put({ ...known, status: job.status, ...("counts" in known ? { counts: job.counts } : job.counts) });
      // What a closed one has besides, a file for one, is asked for; without an answer at least what was told is shown.
      if (isClosed(job.status) !== isClosed(known.status)) api.get(`${path}/${job.id}`, { page_size: name === "distributions" ? 1 : null }).then(put, told);
      else told();
    }
  }, first);

  /** Would be on this page, at its top. @param {any} job */
  function isNew(job) {
    const newest = entries.peek()[0];
    if (first.data.peek() === null || (newest && Date.parse(job.created_at) < Date.parse(newest.created_at))) return false;
    if (scope.peek() !== "all" && job.user_id !== me.peek()?.user_id) return false;
    return !q.peek() && !to.peek() && (statuses.peek().length === 0 || statuses.peek().includes(job.status));
  }

  const more = moreButton(next, () => first.data.value, (after, signal) => api.get(path, { ...asked(), after }, signal), (page) =>
    batch(() => {
      entries.value = [...entries.peek(), ...page[name]];
      next.value = page.next_page ?? null;
    }),
  );
  return { entries, next, fresh, first, more, put, statuses };
}

/** @typedef {ReturnType<typeof listing>} Listing */

/** @param {Listing} list @param {HTMLElement} table @param {() => HTMLElement} nothing what to say before there is anything */
export function listBody(list, table, nothing) {
  const { entries, next, fresh, first, more, statuses } = list;
  const isFiltered = () => FILTERS.some((one) => query.value.has(one));
  return [
    h(
      "div",
      { class: "stack wide", hidden: () => first.data.value !== null && entries.value.length === 0 && !isFiltered() },
      h("div", { class: "filters", role: "search" }, searchField("q", "Search by key or id"), dateField("from", "From"), dateField("to", "to"), clearFilters(FILTERS)),
      statusToggles("statuses", "Status", () => shownStatuses(entries.value, statuses.value)),
    ),
    h("button", { type: "button", class: "pill", hidden: () => fresh.value.size === 0, on: { click: () => first.again() } }, icon("up"), () => `${count(fresh.value.size)} new – show`),
    () => (first.error.value ? failure(first.error.value, first.again) : null),
    h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "The list", hidden: () => entries.value.length === 0 }, table),
    () => (first.data.value === null && !first.error.value ? waiting() : null),
    () => (first.data.value !== null && entries.value.length === 0 ? (isFiltered() ? empty({ title: next.value ? "None so far" : "Nothing matches", says: next.value ? "There is more to look through." : "Change the filters, or clear them." }) : nothing()) : null),
    more,
  ];
}

/** The usual ones, those that are there, and those that are chosen. @param {any[]} entries @param {string[]} chosen */
function shownStatuses(entries, chosen) {
  const there = new Set([...USUAL, ...entries.map((one) => one.status), ...chosen]);
  return JOB_STATUSES.filter((one) => there.has(one)).map((value) => ({ value }));
}

/** The head of a table. @param {Array<string | [string, string]>} labels with a class, if it has one */
export function tableHead(labels) {
  return h("thead", null, h("tr", null, labels.map((one) => (Array.isArray(one) ? h("th", { scope: "col", class: one[1] }, one[0]) : h("th", { scope: "col" }, one || h("span", { class: "unseen" }, "Actions"))))));
}

/** @param {string} date @param {number} [plus] days */
function day(date, plus = 0) {
  if (!date) return null;
  const at = new Date(`${date}T00:00:00`);
  at.setDate(at.getDate() + plus);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}
