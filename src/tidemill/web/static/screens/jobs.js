// @ts-check
/** The jobs screen, newest first. */
import { api, serverNow } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { hasFeature } from "../core/features.js";
import { formatDateTime, formatDuration, formatNumber, formatPercent, formatRate, formatTime, startOfDay } from "../core/format.js";
import { durationText, inputLabel, kindLabel, queuedText } from "../core/job-names.js";
import { onJobUpdates, ownerScope } from "../core/live-updates.js";
import { liveClock } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { href, query, queryList, queryParam } from "../core/router.js";
import { batch, effect, signal } from "../core/signal.js";
import { stableOrder } from "../core/stable-order.js";
import { ThroughputTracker, countSettled } from "../core/throughput.js";
import { toAbsoluteUrl } from "../core/url.js";
import { userName } from "../core/user-names.js";
import { errorBanners } from "../ui/error-banner.js";
import { clearFiltersButton, dateFilter, searchFilter, selectFilter, statusToggles } from "../ui/filter-bar.js";
import { icon } from "../ui/icons.js";
import { loadMoreButton } from "../ui/load-more.js";
import { menuButton } from "../ui/menu.js";
import { emptyState, loadingNotice } from "../ui/notices.js";
import { progressBar, progressText } from "../ui/progress-bar.js";
import { JOB_STATUSES, isClosed, statusBadge } from "../ui/status.js";
import { withUpdatePill } from "../ui/update-pill.js";
import { jobMenuActions } from "./job-actions.js";
import { trackListUpdates } from "./list-updates.js";

const FILTERS = ["q", "statuses", "kind", "from", "to"];
const PAGE_SIZE = 50;
/** Kinds this tab has seen. The API does not list them, and a filtered list may contain only one. */
const kinds = signal(/** @type {string[]} */ ([]));

export function screen() {
  const statuses = queryList("statuses");
  const [q, kind, from, to] = ["q", "kind", "from", "to"].map(queryParam);
  const jobs = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));
  const throughput = new ThroughputTracker();
  const at = liveClock(2_000);

  const requestParams = () => ({ search: q.value, statuses: statuses.value, kind: kind.value, user_id: ownerScope.value, created_from: startOfDay(from.value), created_to: startOfDay(to.value, 1), page_size: PAGE_SIZE });
  const firstPage = remoteData((signal) => api.get("/v1/jobs", requestParams(), signal));
  const totals = remoteData((signal) => api.get("/v1/jobs/counts", { user_id: ownerScope.value }, signal));
  const updates = trackListUpdates({ firstPage, shown: jobs, next, statuses, requestParams });
  effect(() => {
    const page = firstPage.data.value;
    if (page === null) return;
    batch(() => {
      jobs.value = page.jobs;
      next.value = page.next_page ?? null;
      updates.forget();
    });
  });
  effect(() => {
    const all = new Set([...kinds.peek(), ...jobs.value.map((job) => job.kind)]);
    if (all.size > kinds.peek().length) kinds.value = [...all].toSorted();
  });

  onJobUpdates((changed) => {
    const updatedJobs = new Map(changed.map((job) => [job.id, job]));
    changed.forEach((job) => throughput.record(job, serverNow()));
    const known = new Set(jobs.peek().map((job) => job.id));
    batch(() => {
      jobs.value = jobs.peek().map((job) => updatedJobs.get(job.id) ?? job);
      updates.recordJobs(changed.filter((job) => !known.has(job.id)));
    });
    totals.reloadSoon(3_000);
  }, firstPage);

  /** @param {any} job */
  const changed = (job) => (jobs.value = jobs.peek().map((one) => (one.id === job.id ? { ...one, ...job } : one)));
  const more = loadMoreButton(next, () => firstPage.data.value, (after, signal) => api.get("/v1/jobs", { ...requestParams(), after }, signal), (page) =>
    batch(() => {
      jobs.value = [...jobs.peek(), ...page.jobs];
      next.value = page.next_page ?? null;
    }),
  );

  /** Offered statuses stay in place, and new ones come last. Counts cover all jobs, so they are hidden when a filter is set. */
  const offered = new Set();
  const inOrder = stableOrder((/** @type {string} */ value) => value);
  const isFiltered = () => [q, kind, from, to].some((one) => one.value !== "");
  const byStatus = () => {
    const counts = totals.data.value;
    if (counts === null && totals.error.value === null) return []; // otherwise the chosen ones would come first
    for (const value of JOB_STATUSES) if (counts?.counts[value] || statuses.value.includes(value)) offered.add(value);
    return inOrder(JOB_STATUSES.filter((value) => offered.has(value))).map((value) => ({ value, count: isFiltered() ? null : (counts?.counts[value] ?? null), isMinimum: counts ? !counts.is_complete : false }));
  };
  const isAll = () => ownerScope.value === "all";
  /** @param {any} job */
  const ownerName = (job) => userName(job.user_id);

  const body = h("tbody");
  keyedList(body, () => jobs.value, (job) => job.id, (job) => jobRow(job));
  /** @param {import("../core/signal.js").Signal<any>} job */
  function jobRow(job) {
    const open = () => !isClosed(job.value.status);
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, h("a", { href: href(`/jobs/${job.peek().key}`), class: "mono" }, job.peek().key)),
      h("td", { class: () => (job.value.file_name ? "name-cell narrow" : "name-cell narrow muted"), data: { label: "File" }, title: () => job.value.file_name }, h("a", { class: "plain", href: href(`/jobs/${job.peek().key}`), tabindex: "-1" }, () => inputLabel(job.value))),
      h("td", { class: "name-cell", data: { label: "Target" }, title: () => job.value.target }, () => (job.value.target ? `${job.value.target} ` : ""), h("span", { class: "chip" }, kindLabel(job.peek().kind))),
      h("td", { hidden: () => !isAll(), data: { label: "Owner" } }, () => ownerName(job.value)),
      h("td", { class: "status-cell" }, () => statusBadge(job.value.status)),
      h("td", { class: "wide-cell" }, progressBar(() => job.value.counts, { thin: true }), h("small", { class: "muted number" }, () => (at.value, `${summary(job.value)}${open() ? rateText(job.value) : ""}`))),
      h("td", { class: "nowrap", data: { label: "Duration" }, title: () => (at.value, queuedText(job.value, serverNow())) }, () => (at.value, durationText(job.value, serverNow())), h("small", { class: "muted" }, () => (at.value, open() ? timeLeftText(job.value) : ""))),
      h("td", { class: "nowrap", data: { label: "Submitted" }, title: () => formatDateTime(job.value.created_at) }, () => formatTime(job.value.created_at)),
      h("td", { class: "right at-end" }, menuButton(`Actions for ${job.peek().key}`, () => jobMenuActions(job.peek(), changed, () => firstPage.reload()))),
    );
  }
  /** @param {any} job */
  const rateText = (job) => {
    const found = throughput.itemsPerSecond(job, serverNow());
    return found === null || found === 0 ? "" : ` · ${formatRate(found)}`;
  };
  /** @param {any} job */
  const timeLeftText = (job) => {
    const found = throughput.secondsLeft(job, serverNow());
    return found === null ? "" : ` ${formatDuration(found)} left`;
  };

  const table = h(
    "div",
    { class: "table-box", hidden: () => jobs.value.length === 0 },
    h("table", { class: "cards dense", "aria-label": "Jobs" }, h("thead", null, h("tr", null, columnHeader("Job"), columnHeader("File"), columnHeader("Target and kind"), h("th", { scope: "col", hidden: () => !isAll() }, "Owner"), columnHeader("Status"), columnHeader("Progress"), columnHeader("Duration"), columnHeader("Submitted"), h("th", { scope: "col" }, h("span", { class: "unseen" }, "Actions")))), body),
  );
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Jobs"), () => (hasFeature("imports") ? importButton() : null)),
    h("div", { class: "filters", role: "search" }, searchFilter("q", "Search by file name or key"), selectFilter("kind", "Kind", () => kinds.value.map((value) => ({ value, label: value }))), dateFilter("from", "From"), dateFilter("to", "to"), clearFiltersButton(FILTERS)),
    statusToggles("statuses", "Status", byStatus),
    errorBanners([firstPage]),
    withUpdatePill(
      updates.pillText,
      firstPage.reload,
      table,
      () => (firstPage.data.value === null && !firstPage.error.value ? loadingNotice() : null),
      () => (firstPage.data.value !== null && jobs.value.length === 0 ? emptyList(FILTERS.some((name) => query.value.has(name)), next.value !== null) : null),
    ),
    more,
  );
}

/** @param {string} label */
function columnHeader(label) {
  return h("th", { scope: "col" }, label);
}

function importButton() {
  return h("a", { class: "button main-act", href: href("/imports/new") }, icon("plus"), "Import a file");
}

/** @param {any} job */
function summary(job) {
  const { counts } = job;
  if (counts.total === 0) return job.ingest_complete ? "no rows" : "reading";
  if (isClosed(job.status)) return progressText(counts).split(", ").slice(1).join(" · ");
  return `${formatPercent(countSettled(counts), counts.total)} of ${formatNumber(counts.total)}${counts.failed ? ` · ${formatNumber(counts.failed)} failed` : ""}`;
}

/** @param {boolean} isFiltered @param {boolean} hasMore */
function emptyList(isFiltered, hasMore) {
  if (isFiltered) return emptyState({ title: hasMore ? "No matches so far" : "No job matches", text: hasMore ? "Show more to search further." : "Change the filters, or clear them." });
  const url = toAbsoluteUrl("/v1/jobs");
  return emptyState({
    title: "No jobs yet",
    text: hasFeature("imports") ? "Import a file to check its rows and write them to a table. This page then shows the progress of the job." : "Submit rows over HTTP or from the command line. Rows are stored first and then processed; this page shows the progress.",
    actions: hasFeature("imports") ? [importButton()] : [],
    areFolded: hasFeature("imports"),
    commands: [
      ["With curl", `curl ${url} -H "Authorization: Bearer $KEY" --json '{"kind": "greet", "inputs": [{"name": "ada"}]}'`],
      ["From a file", "tidemill submit greet people.csv"],
    ],
  });
}
