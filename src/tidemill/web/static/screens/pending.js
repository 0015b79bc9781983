// @ts-check
/** Pending: what waits or is in hand in all jobs. Behind a flag of the service. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { findJob } from "../core/find-job.js";
import { count, duration, rate } from "../core/format.js";
import { calm, every, load } from "../core/load.js";
import { openJobs } from "../core/open-jobs.js";
import { href, word } from "../core/router.js";
import { computed } from "../core/signal.js";
import { scope } from "../core/sse.js";
import { empty, failure, waiting } from "../ui/empty.js";
import { choice, clearFilters, dateField, searchField, statusToggles } from "../ui/filter-bar.js";
import { OPEN_ITEMS } from "../ui/status.js";
import { trouble } from "../ui/trouble.js";
import { USUAL, pendingFilter, pendingList } from "./pending-list.js";

const FILTERS = ["statuses", "type", "job", "from", "to"];
const FLOW_MS = 10_000;

export function screen() {
  const limits = load((signal) => api.get("/v1/limits", {}, signal));
  // Who signs in again has asked for the same: what was selected stays.
  const isOn = computed(() => limits.data.value?.pending_dashboard ?? null);
  return h("div", { class: "screen" }, h("div", { class: "head" }, h("h1", null, "Pending")), () => {
    if (isOn.value !== null) return isOn.value ? dashboard() : switchedOff();
    return limits.error.value ? failure(limits.error.value, limits.again) : waiting();
  });
}

function switchedOff() {
  return empty({
    title: "This screen is switched off",
    says: "Whoever runs this service can switch it on, in its environment, and start it again. What waits in a single job is shown there, under Pending.",
    recipes: [["In the environment of the service", "TIDEMILL_PENDING_DASHBOARD=true"]],
    acts: [h("a", { class: "button", href: href("/jobs") }, "To the jobs")],
  });
}

function dashboard() {
  const open = openJobs();
  const filter = pendingFilter();
  const found = findJob(word("job"));
  const flow = load((signal) => api.get("/v1/flow", { user_id: scope.value }, signal));
  every(() => flow.soon(0), FLOW_MS);

  const fits = (/** @type {any} */ job) => (!filter.kind.value || job.kind === filter.kind.value) && (!found.value?.id || job.id === found.value.id);
  const byStatus = () => {
    const sums = /** @type {any} */ (open.sum(fits));
    // Nobody has sums of days, and none stand beside a list that is not there.
    const isTold = !filter.from.value && !filter.to.value && found.value !== null && !found.value.problem;
    return OPEN_ITEMS.map((value) => ({ value, n: isTold ? sums[value] : null, atLeast: !open.isComplete.value }));
  };
  const total = (/** @type {string[]} */ statuses) => {
    if (open.first.data.value === null) return null;
    const sums = /** @type {any} */ (open.sum(fits));
    return statuses.reduce((sum, name) => sum + sums[name], 0);
  };
  const says = () => (open.first.data.value === null ? "" : summary(open.sum(() => true), flow.data.value, open.isComplete.value));
  return [
    trouble([open.first, flow]),
    h("p", { class: "row muted" }, says),
    h("p", { class: "unseen", role: "status" }, calm(says)),
    h("div", { class: "filters", role: "search" }, statusToggles("statuses", "Status", byStatus, USUAL), choice("type", "Job type", open.kinds), searchField("job", "Job id or key"), dateField("from", "Updated from"), dateField("to", "to"), clearFilters(FILTERS)),
    () => (found.value?.problem ? h("p", { class: "notice", role: "status" }, found.value.problem) : null),
    () => (found.value?.problem ? null : pendingList({ chosenJob: () => found.value, jobOf: (id) => open.jobs.value.get(id), open: total, atLeast: () => !open.isComplete.value })),
  ];
}

/** @param {import("../core/open-jobs.js").Open} sums @param {any} flow @param {boolean} isComplete */
function summary(sums, flow, isComplete) {
  const all = sums.pending + sums.processing + sums.retry_wait;
  const parts = [`${isComplete ? "" : "at least "}${count(all)} open: ${count(sums.pending)} pending, ${count(sums.processing)} in hand, ${count(sums.retry_wait)} waiting for a retry`];
  const perSecond = flow ? recent(flow) : 0;
  if (all && perSecond > 0) parts.push(`at ${rate(perSecond)}, drained in ${isComplete ? "about" : "more than"} ${duration(all / perSecond)}`);
  else if (all && flow) parts.push("nothing was settled in the last two minutes: no estimate");
  return parts.join(" · ");
}

/** Items a second over the last two minutes. @param {any} flow */
function recent(flow) {
  const last = flow.points.slice(-4);
  return last.reduce((/** @type {number} */ sum, /** @type {any} */ point) => sum + point.settled, 0) / (last.length * flow.step_s);
}
