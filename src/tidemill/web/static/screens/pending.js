// @ts-check
/** The pending screen: pending and processing items of all jobs. A setting of the service turns it off. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { findJob } from "../core/find-job.js";
import { formatDuration, formatNumber, formatRate } from "../core/format.js";
import { ownerScope } from "../core/live-updates.js";
import { trackOpenJobs } from "../core/open-jobs.js";
import { everyWhileLive, throttledText } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { href, queryParam } from "../core/router.js";
import { computed } from "../core/signal.js";
import { errorBanners } from "../ui/error-banner.js";
import { clearFiltersButton, dateFilter, searchFilter, selectFilter, statusToggles } from "../ui/filter-bar.js";
import { emptyState, errorNotice, loadingNotice } from "../ui/notices.js";
import { OPEN_ITEM_STATUSES } from "../ui/status.js";
import { unservedItems, unservedText } from "./health-tiles.js";
import { DEFAULT_STATUSES, pendingFilter, pendingList } from "./pending-list.js";

const FILTERS = ["statuses", "type", "job", "from", "to"];
const FLOW_REFRESH_MS = 10_000;

export function screen() {
  const limits = remoteData((signal) => api.get("/v1/limits", {}, signal));
  // Signing in again loads the same limits; the selection is kept.
  const isOn = computed(() => limits.data.value?.pending_dashboard ?? null);
  return h("div", { class: "screen" }, h("div", { class: "head" }, h("h1", null, "Pending")), () => {
    if (isOn.value !== null) return isOn.value ? dashboard() : disabledNotice();
    return limits.error.value ? errorNotice(limits.error.value, limits.reload) : loadingNotice();
  });
}

function disabledNotice() {
  return emptyState({
    title: "This screen is disabled",
    text: "An administrator can enable it in the service's environment, then restart the service. The Pending tab of each job is still available.",
    commands: [["In the service's environment", "TIDEMILL_PENDING_DASHBOARD=true"]],
    actions: [h("a", { class: "button", href: href("/jobs") }, "Go to jobs")],
  });
}

function dashboard() {
  const open = trackOpenJobs();
  const filter = pendingFilter();
  const found = findJob(queryParam("job"));
  const flow = remoteData((signal) => api.get("/v1/flow", { user_id: ownerScope.value }, signal));
  everyWhileLive(() => flow.reloadSoon(0), FLOW_REFRESH_MS);

  const matchesFilter = (/** @type {any} */ job) => (!filter.kind.value || job.kind === filter.kind.value) && (!found.value?.id || job.id === found.value.id);
  const byStatus = () => {
    const sums = /** @type {any} */ (open.sumCounts(matchesFilter));
    // There are no counters by day, and none for a job that was not found.
    const hasCounts = !filter.from.value && !filter.to.value && found.value !== null && !found.value.problem;
    return OPEN_ITEM_STATUSES.map((value) => ({ value, count: hasCounts ? sums[value] : null, isMinimum: !open.isComplete.value }));
  };
  const total = (/** @type {string[]} */ statuses) => {
    if (open.firstPage.data.value === null) return null;
    const sums = /** @type {any} */ (open.sumCounts(matchesFilter));
    return statuses.reduce((sum, name) => sum + sums[name], 0);
  };
  const summaryLine = () => (open.firstPage.data.value === null ? "" : summary(open, flow.data.value));
  return [
    errorBanners([open.firstPage, flow]),
    h("p", { class: "row muted" }, summaryLine),
    h("p", { class: "unseen", role: "status" }, throttledText(summaryLine)),
    h("div", { class: "filters", role: "search" }, statusToggles("statuses", "Status", byStatus, DEFAULT_STATUSES), selectFilter("type", "Kind", open.kinds), searchFilter("job", "Search by file name or key"), dateFilter("from", "Updated from"), dateFilter("to", "to"), clearFiltersButton(FILTERS)),
    () => (found.value?.problem ? h("p", { class: "notice", role: "status" }, found.value.problem) : null),
    () => (found.value?.problem ? null : pendingList({ chosenJob: () => found.value, jobOf: (id) => open.jobs.value.get(id), countOpen: total, isMinimum: () => !open.isComplete.value })),
  ];
}

/** @param {ReturnType<typeof trackOpenJobs>} open @param {any} flow */
function summary(open, flow) {
  const isComplete = open.isComplete.value;
  const sums = open.sumCounts(() => true);
  const parts = [`${isComplete ? "" : "at least "}${formatNumber(countOpen(sums))} open: ${formatNumber(sums.pending)} pending, ${formatNumber(sums.processing)} processing, ${formatNumber(sums.retry_wait)} waiting for a retry`];
  if (countOpen(sums) && flow) parts.push(estimate(open, flow));
  return parts.join(" · ");
}

/** When the rows that can run now will be done. @param {ReturnType<typeof trackOpenJobs>} open @param {any} flow */
function estimate(open, flow) {
  const all = countOpen(open.sumCounts(() => true));
  const moving = all - flow.paused - unservedItems(flow);
  if (moving <= 0) return `no estimate: ${unservedText(flow) || "all of them are paused or being cancelled"}`;
  const perSecond = recentRate(flow);
  if (!(perSecond > 0)) return "no estimate: nothing was settled in the last 2 minutes";
  return `at ${formatRate(perSecond)}, ${moving < all ? `${formatNumber(moving)} of them ` : ""}done in ${open.isComplete.value ? "about" : "more than"} ${formatDuration(moving / perSecond)}`;
}

/** @param {import("../core/open-jobs.js").OpenCounts} sums */
function countOpen(sums) {
  return sums.pending + sums.processing + sums.retry_wait;
}

/** Items per second over the last two minutes. @param {any} flow */
function recentRate(flow) {
  const last = flow.points.slice(-4);
  return last.reduce((/** @type {number} */ sum, /** @type {any} */ point) => sum + point.settled, 0) / (last.length * flow.step_s);
}
