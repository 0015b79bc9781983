// @ts-check
/** A live list of jobs of one kind, newest first, shared by imports, exports and distributions. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { startOfDay } from "../core/format.js";
import { onJobUpdates, ownerScope } from "../core/live-updates.js";
import { remoteData } from "../core/remote-data.js";
import { query, queryList, queryParam } from "../core/router.js";
import { batch, effect, signal } from "../core/signal.js";
import { stableOrder } from "../core/stable-order.js";
import { errorBanners } from "../ui/error-banner.js";
import { clearFiltersButton, dateFilter, searchFilter, statusToggles } from "../ui/filter-bar.js";
import { loadMoreButton } from "../ui/load-more.js";
import { emptyState, loadingNotice } from "../ui/notices.js";
import { JOB_STATUSES, isClosed } from "../ui/status.js";
import { withUpdatePill } from "../ui/update-pill.js";
import { trackListUpdates } from "./list-updates.js";

const FILTERS = ["q", "statuses", "from", "to"];
const DEFAULT_STATUSES = ["running", "completed", "completed_with_errors", "failed", "cancelled"];
const PAGE_SIZE = 50;

/**
 * @param {string} path of the API, such as `/v1/imports`
 * @param {string} name of the list in the response
 * @param {string} kind of the jobs
 */
export function jobList(path, name, kind) {
  const statuses = queryList("statuses");
  const [q, from, to] = ["q", "from", "to"].map(queryParam);
  const entries = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));

  const requestParams = () => ({ search: q.value, statuses: statuses.value, user_id: ownerScope.value, created_from: startOfDay(from.value), created_to: startOfDay(to.value, 1), page_size: PAGE_SIZE });
  const firstPage = remoteData((signal) => api.get(path, requestParams(), signal));
  const updates = trackListUpdates({ firstPage, shown: entries, next, statuses, requestParams });
  effect(() => {
    const page = firstPage.data.value;
    if (page === null) return;
    batch(() => {
      entries.value = page[name];
      next.value = page.next_page ?? null;
      updates.forget();
    });
  });

  /** @param {any} entry */
  const replaceEntry = (entry) => (entries.value = entries.peek().map((one) => (one.job_id === entry.job_id ? entry : one)));
  onJobUpdates((jobs) => {
    for (const job of jobs) {
      if (job.kind !== kind) continue;
      const known = entries.peek().find((one) => one.job_id === job.id);
      if (known === undefined) {
        updates.recordJobs([job]);
        continue;
      }
      const applyUpdate = () => replaceEntry({ ...known, status: job.status, started_at: job.started_at, idle_s: job.idle_s, ...("counts" in known ? { counts: job.counts } : job.counts) });
      // A closed job has more data, such as a file: load it. If that fails, apply the update alone.
      if (isClosed(job.status) !== isClosed(known.status)) api.get(`${path}/${job.id}`, { page_size: name === "distributions" ? 1 : null }).then(replaceEntry, applyUpdate);
      else applyUpdate();
    }
  }, firstPage);

  const more = loadMoreButton(next, () => firstPage.data.value, (after, signal) => api.get(path, { ...requestParams(), after }, signal), (page) =>
    batch(() => {
      entries.value = [...entries.peek(), ...page[name]];
      next.value = page.next_page ?? null;
    }),
  );
  return { entries, next, updates, firstPage, more, replaceEntry, statuses };
}

/** @typedef {ReturnType<typeof jobList>} JobList */

/** @param {JobList} list @param {HTMLElement} table @param {() => HTMLElement} nothing shown while the list is empty */
export function jobListBody(list, table, nothing) {
  const { entries, next, updates, firstPage, more, statuses } = list;
  const inOrder = stableOrder((/** @type {{value: string}} */ one) => one.value);
  const isFiltered = () => FILTERS.some((one) => query.value.has(one));
  return [
    h(
      "div",
      { class: "stack wide", hidden: () => firstPage.data.value !== null && entries.value.length === 0 && !isFiltered() },
      h("div", { class: "filters", role: "search" }, searchFilter("q", "Search by file name or key"), dateFilter("from", "From"), dateFilter("to", "to"), clearFiltersButton(FILTERS)),
      statusToggles("statuses", "Status", () => inOrder(statusOptions(entries.value, statuses.value))),
    ),
    errorBanners([firstPage]),
    withUpdatePill(
      updates.pillText,
      firstPage.reload,
      h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "List", hidden: () => entries.value.length === 0 }, table),
      () => (firstPage.data.value === null && !firstPage.error.value ? loadingNotice() : null),
      () => (firstPage.data.value !== null && entries.value.length === 0 ? (isFiltered() ? emptyState({ title: next.value ? "No matches so far" : "Nothing matches", text: next.value ? "Show more to search further." : "Change the filters, or clear them." }) : nothing()) : null),
    ),
    more,
  ];
}

/** The default statuses, those of the entries, and the chosen ones. @param {any[]} entries @param {string[]} chosen */
function statusOptions(entries, chosen) {
  const there = new Set([...DEFAULT_STATUSES, ...entries.map((one) => one.status), ...chosen]);
  return JOB_STATUSES.filter((one) => there.has(one)).map((value) => ({ value }));
}

/** The head of a table. @param {Array<string | [string, string]>} labels with a class, if any */
export function tableHead(labels) {
  return h("thead", null, h("tr", null, labels.map((one) => (Array.isArray(one) ? h("th", { scope: "col", class: one[1] }, one[0]) : h("th", { scope: "col" }, one || h("span", { class: "unseen" }, "Actions"))))));
}
