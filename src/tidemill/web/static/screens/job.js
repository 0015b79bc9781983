// @ts-check
/** The job screen: progress above, details in tabs below. */
import { api, isNotFound } from "../core/api.js";
import { h } from "../core/dom.js";
import { estimateTimeLeft, formatAge, formatDateTime, formatNumber, formatPercent, formatRate, humanize } from "../core/format.js";
import { onJobUpdates, watchJob } from "../core/live-updates.js";
import { durationText, jobTitle, queuedText, setTabTitle } from "../core/job-names.js";
import { everyWhileLive, liveClock } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { href, navigate } from "../core/router.js";
import { computed, effect } from "../core/signal.js";
import { countSettled } from "../core/throughput.js";
import { userName } from "../core/user-names.js";
import { errorBanners } from "../ui/error-banner.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { emptyState, loadingNotice } from "../ui/notices.js";
import { progressBar } from "../ui/progress-bar.js";
import { singleFlight } from "../ui/single-flight.js";
import { isClosed, statusBadge } from "../ui/status.js";
import { itemsView } from "./items.js";
import { cancelJob, exportJob, jobMenuActions, pauseJob, reprocessItems, resumeJob } from "./job-actions.js";
import { jobOverview } from "./job-overview.js";
import { activityView, configView, errorsView, pendingView } from "./job-tabs.js";

/** @type {Array<[tab: string, label: string, n?: (job: any) => number]>} */
const TABS = [
  ["overview", "Overview"],
  ["results", "Results"],
  ["pending", "Pending", (job) => job.counts.pending + job.counts.processing + job.counts.retry_wait],
  ["errors", "Errors", (job) => job.counts.failed],
  ["config", "Config"],
  ["activity", "Activity"],
];
/** @type {Array<[name: string, label: string, colour: string]>} */
const FIGURES = [
  ["done", "done", "--bar-ok"],
  ["failed", "failed", "--bar-bad"],
  ["not_found", "not found", "--bar-other"],
  ["skipped", "skipped", "--bar-other"],
  ["cancelled", "cancelled", "--bar-other"],
  ["retry_wait", "retrying", "--bar-retry"],
  ["processing", "processing", "--bar-run"],
  ["pending", "pending", "--track"],
];

const RELOAD_MS = 10_000;

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} options */
export function screen({ params }) {
  const name = params.peek().job;
  const job = remoteData((signal) => api.get(`/v1/jobs/${encodeURIComponent(name)}`, {}, signal));
  const tab = computed(() => params.value.tab ?? "overview");
  const isLoaded = computed(() => job.data.value !== null);

  onJobUpdates((changed) => {
    const known = job.data.peek();
    const updated = known && changed.find((one) => one.id === known.id);
    if (!updated) return;
    job.data.value = { ...known, ...updated };
    job.reloadSoon(2_000); // live updates do not contain rates, error codes and adaptive state
  }, job);
  const isDeleted = computed(() => isNotFound(job.error.value));
  everyWhileLive(() => isDeleted.peek() || job.reloadSoon(0), RELOAD_MS); // live updates do not report deleted jobs
  watchJob(() => (isLoaded.value && !isDeleted.value && !isClosed(/** @type {any} */ (job.data.value).status) ? job.data.peek().id : null));
  effect(() => {
    if (isLoaded.value) setTabTitle(jobTitle(job.data.value), job.data.value?.file_name, job.data.peek().key);
  });

  return h("div", { class: "screen" }, errorBanners([job], isNotFound), () => {
    if (isDeleted.value) return isLoaded.value ? notFound("This job no longer exists", `${job.data.peek().key} was deleted with its rows and results, or you can no longer access it.`) : notFound("Job not found", `There is no job "${name}". It may have been deleted or belong to another user.`);
    if (isLoaded.value) return jobView();
    return job.error.value ? null : loadingNotice();
  });

  /** @param {string} title @param {string} text */
  function notFound(title, text) {
    return emptyState({ title, text, actions: [h("a", { class: "button", href: href("/jobs") }, "Go to jobs")] });
  }

  function jobView() {
    const found = /** @type {import("../core/signal.js").Signal<any>} */ (job.data);
    const changed = (/** @type {any} */ next) => {
      found.value = { ...found.peek(), ...next };
      job.reload(); // replaces an older response that may be on its way
    };
    const views = {
      overview: () => jobOverview(found),
      results: () => itemsView(found, job.reload),
      pending: () => pendingView(found),
      errors: () => errorsView(found, job.reload),
      config: () => configView(found),
      activity: () => activityView(found),
    };
    const base = `/jobs/${found.peek().key}`;
    return [
      jobHeader(found, changed, job),
      h("nav", { class: "tabs", "aria-label": "Job sections" }, TABS.map(([id, label, n]) => h("a", { href: href(id === "overview" ? base : `${base}/${id}`), "aria-current": () => (tab.value === id ? "page" : null) }, label, n ? h("span", { class: "number" }, () => (n(found.value) ? ` ${formatNumber(n(found.value))}` : "")) : null))),
      () => (/** @type {any} */ (views)[tab.value] ?? views.overview)(),
    ];
  }
}

/** @param {import("../core/signal.js").Signal<any>} job @param {(job: any) => void} changed @param {import("../core/remote-data.js").RemoteData<any>} loaded */
function jobHeader(job, changed, loaded) {
  const at = liveClock();
  const shown = computed(() => job.value.status);
  const isPaused = () => shown.value === "paused";
  const isOver = () => isClosed(shown.value) || shown.value === "cancelling";
  // Each button stays the same element, however often the job changes.
  const actionButton = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {() => any} */ run, more = {}) => h("button", { type: "button", ...more, on: { click: singleFlight(run) } }, icon(picture), label);
  return h(
    "section",
    { class: "stack" },
    h("p", { class: "crumbs" }, h("a", { href: href("/jobs") }, "Jobs"), " / ", job.peek().key),
    h(
      "div",
      { class: "head" },
      h("div", { class: "title" }, h("h1", null, () => jobTitle(job.value), () => (job.value.file_name ? h("span", { class: "file-name" }, ` ${job.value.file_name}`) : null), " ", h("small", { class: "mono muted" }, job.peek().key)), () => statusBadge(shown.value)),
      h(
        "div",
        { class: "row" },
        h("button", { type: "button", class: () => (isPaused() ? "main-act" : null), hidden: isOver, on: { click: singleFlight(() => (isPaused() ? resumeJob : pauseJob)(job.peek(), changed)) } }, () => (isPaused() ? [icon("play"), "Resume"] : [icon("pause"), "Pause"])),
        actionButton("Cancel …", "ban", () => cancelJob(job.peek(), changed), { class: "danger", hidden: isOver }),
        actionButton("Retry failed …", "retry", () => reprocessItems(job.peek(), { statuses: ["failed"] }, loaded.reload), { disabled: () => job.value.counts.failed === 0, title: () => (job.value.counts.failed ? null : "No failed rows") }),
        actionButton("Export …", "export", () => exportJob(job.peek())),
        menuButton("More actions", () => jobMenuActions(job.peek(), changed, () => navigate("/jobs")), { class: "icon-only" }),
      ),
    ),
    () => (job.value.failure_reason ? h("p", { class: "notice", data: { tone: "bad" } }, `Failed: ${job.value.failure_reason}`) : null),
    h(
      "div",
      { class: "card stack" },
      h("dl", { class: "figures" }, h("div", null, h("dt", null, () => (job.value.ingest_complete ? "total" : "read so far")), h("dd", null, () => formatNumber(job.value.counts.total))), FIGURES.map(([name, label, colour]) => h("div", { hidden: () => job.value.counts[name] === 0 && !["done", "failed", "pending"].includes(name) }, h("dt", null, h("span", { class: "swatch", style: { "--swatch": `var(${colour})` } }), label), h("dd", null, () => formatNumber(job.value.counts[name]))))),
      h("div", { class: "row" }, h("div", { class: "grow" }, progressBar(() => job.value.counts)), h("strong", { class: "number" }, () => formatPercent(countSettled(job.value.counts), job.value.counts.total))),
      h("p", { class: "row small muted" }, () => progressText(job.value, at.value)),
    ),
  );
}

/** @param {any} job @param {number} at */
function progressText(job, at) {
  const { rates } = job;
  const parts = [`average ${formatRate(rates.average_per_s)}`];
  if (!isClosed(job.status)) {
    parts.unshift(`now ${formatRate(rates.now_per_s)}`);
    const found = estimateTimeLeft(rates, job.started_at ?? job.created_at, at);
    parts.push(found.isKnown ? `done in ${found.text}` : `no estimate: ${found.text}`);
    if (job.started_at) parts.push(`running for ${durationText(job, at)}`);
  } else parts.push(`${humanize(job.status)} ${formatAge(job.closed_at, at)}`, job.started_at ? `ran ${durationText(job, at)}` : "not started");
  parts.push(queuedText(job, at));
  return [parts.filter(Boolean).map((one) => h("span", { class: "number" }, one)), h("span", { title: formatDateTime(job.created_at) }, `submitted ${formatAge(job.created_at, at)} by ${userName(job.user_id)}`)];
}
