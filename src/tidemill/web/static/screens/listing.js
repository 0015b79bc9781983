// @ts-check
/** Jobs of one kind, the newest first, live: what the lists of imports, exports and distributions share. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { dayStart } from "../core/format.js";
import { load } from "../core/load.js";
import { query, word, words } from "../core/router.js";
import { batch, effect, signal } from "../core/signal.js";
import { onJobs, scope } from "../core/sse.js";
import { steady } from "../core/steady.js";
import { empty, waiting } from "../ui/empty.js";
import { clearFilters, dateField, searchField, statusToggles } from "../ui/filter-bar.js";
import { moreButton } from "../ui/more.js";
import { underPill } from "../ui/pill.js";
import { JOB_STATUSES, isClosed } from "../ui/status.js";
import { trouble } from "../ui/trouble.js";
import { listNews } from "./list-news.js";

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

  const asked = () => ({ q: q.value, statuses: statuses.value, user_id: scope.value, created_from: dayStart(from.value), created_to: dayStart(to.value, 1), page_size: PAGE });
  const first = load((signal) => api.get(path, asked(), signal));
  const news = listNews({ first, shown: entries, next, statuses, asked });
  effect(() => {
    const page = first.data.value;
    if (page === null) return;
    batch(() => {
      entries.value = page[name];
      next.value = page.next_page ?? null;
      news.forget();
    });
  });

  /** @param {any} entry */
  const put = (entry) => (entries.value = entries.peek().map((one) => (one.job_id === entry.job_id ? entry : one)));
  onJobs((jobs) => {
    for (const job of jobs) {
      if (job.kind !== kind) continue;
      const known = entries.peek().find((one) => one.job_id === job.id);
      if (known === undefined) {
        news.hear([job]);
        continue;
      }
      const told = () => put({ ...known, status: job.status, ...("counts" in known ? { counts: job.counts } : job.counts) });
      // What a closed one has besides, a file for one, is asked for; without an answer at least what was told is shown.
      if (isClosed(job.status) !== isClosed(known.status)) api.get(`${path}/${job.id}`, { page_size: name === "distributions" ? 1 : null }).then(put, told);
      else told();
    }
  }, first);

  const more = moreButton(next, () => first.data.value, (after, signal) => api.get(path, { ...asked(), after }, signal), (page) =>
    batch(() => {
      entries.value = [...entries.peek(), ...page[name]];
      next.value = page.next_page ?? null;
    }),
  );
  return { entries, next, news, first, more, put, statuses };
}

/** @typedef {ReturnType<typeof listing>} Listing */

/** @param {Listing} list @param {HTMLElement} table @param {() => HTMLElement} nothing what to say before there is anything */
export function listBody(list, table, nothing) {
  const { entries, next, news, first, more, statuses } = list;
  const inOrder = steady((/** @type {{value: string}} */ one) => one.value);
  const isFiltered = () => FILTERS.some((one) => query.value.has(one));
  return [
    h(
      "div",
      { class: "stack wide", hidden: () => first.data.value !== null && entries.value.length === 0 && !isFiltered() },
      h("div", { class: "filters", role: "search" }, searchField("q", "Search by key or id"), dateField("from", "From"), dateField("to", "to"), clearFilters(FILTERS)),
      statusToggles("statuses", "Status", () => inOrder(shownStatuses(entries.value, statuses.value))),
    ),
    trouble([first]),
    underPill(
      news.says,
      first.again,
      h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "The list", hidden: () => entries.value.length === 0 }, table),
      () => (first.data.value === null && !first.error.value ? waiting() : null),
      () => (first.data.value !== null && entries.value.length === 0 ? (isFiltered() ? empty({ title: next.value ? "None so far" : "Nothing matches", says: next.value ? "There is more to look through." : "Change the filters, or clear them." }) : nothing()) : null),
    ),
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
