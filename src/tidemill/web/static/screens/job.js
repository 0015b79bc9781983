// @ts-check
/** One job: how far it is above, everything about it in tabs below. */
import { api, isMissing } from "../core/api.js";
import { h } from "../core/dom.js";
import { ago, count, estimate, percent, rate, wholeMoment, words } from "../core/format.js";
import { every, load, ticking } from "../core/load.js";
import { settled } from "../core/pace.js";
import { go, href } from "../core/router.js";
import { computed, effect } from "../core/signal.js";
import { lookAt, onJobs } from "../core/sse.js";
import { userName } from "../core/users.js";
import { empty, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { press } from "../ui/press.js";
import { progressBar } from "../ui/progress.js";
import { isClosed, status } from "../ui/status.js";
import { trouble } from "../ui/trouble.js";
import { itemsView } from "./items.js";
import { cancel, exportJob, jobActions, pause, reprocess, resume } from "./job-acts.js";
import { activityView, configView, errorsView } from "./job-more.js";
import { overview } from "./job-overview.js";
import { pendingView } from "./job-pending.js";

/** @type {Array<[tab: string, label: string, n?: (job: any) => number]>} */
const TABS = [
  ["overview", "Overview"],
  ["results", "Results"],
  ["pending", "Pending", (job) => job.counts.pending + job.counts.processing + job.counts.retry_wait],
  ["errors", "Errors", (job) => job.counts.failed],
  ["config", "Config"],
  ["activity", "Activity"],
];
/** @type {Array<[name: string, said: string, colour: string]>} */
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

const LOOKS_AGAIN_MS = 10_000;

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} asked */
export function screen({ params }) {
  const name = params.peek().job;
  const job = load((signal) => api.get(`/v1/jobs/${encodeURIComponent(name)}`, {}, signal));
  const tab = computed(() => params.value.tab ?? "overview");
  const isThere = computed(() => job.data.value !== null);

  onJobs((changed) => {
    const known = job.data.peek();
    const fresh = known && changed.find((one) => one.id === known.id);
    if (!fresh) return;
    job.data.value = { ...known, ...fresh };
    job.soon(2_000); // what the stream does not tell: rates, causes, what the workers settled on
  }, job);
  const isGone = computed(() => isMissing(job.error.value));
  every(() => isGone.peek() || job.soon(0), LOOKS_AGAIN_MS); // nobody tells that a job was deleted
  lookAt(() => (isThere.value && !isGone.value && !isClosed(/** @type {any} */ (job.data.value).status) ? job.data.peek().id : null));
  effect(() => {
    if (isThere.value) document.title = `${job.data.peek().key} · Tidemill`;
  });

  return h("div", { class: "screen" }, trouble([job], isMissing), () => {
    if (isGone.value) return isThere.value ? none("This job is not there any more", `${job.data.peek().key} was deleted, with its rows and results, or is not yours to see any more.`) : none("There is no such job", `No job of yours is called ${name}. It may have been deleted, or belong to somebody else.`);
    if (isThere.value) return whole();
    return job.error.value ? null : waiting();
  });

  /** @param {string} title @param {string} says */
  function none(title, says) {
    return empty({ title, says, acts: [h("a", { class: "button", href: href("/jobs") }, "To the jobs")] });
  }

  function whole() {
    const found = /** @type {import("../core/signal.js").Signal<any>} */ (job.data);
    const changed = (/** @type {any} */ next) => {
      found.value = { ...found.peek(), ...next };
      job.again(); // instead of an answer that is on its way, and older
    };
    const views = {
      overview: () => overview(found),
      results: () => itemsView(found, job.again),
      pending: () => pendingView(found),
      errors: () => errorsView(found, job.again),
      config: () => configView(found),
      activity: () => activityView(found),
    };
    const base = `/jobs/${found.peek().key}`;
    return [
      head(found, changed, job),
      h("nav", { class: "tabs", "aria-label": "About this job" }, TABS.map(([id, label, n]) => h("a", { href: href(id === "overview" ? base : `${base}/${id}`), "aria-current": () => (tab.value === id ? "page" : null) }, label, n ? h("span", { class: "number" }, () => (n(found.value) ? ` ${count(n(found.value))}` : "")) : null))),
      () => (/** @type {any} */ (views)[tab.value] ?? views.overview)(),
    ];
  }
}

/** @param {import("../core/signal.js").Signal<any>} job @param {(job: any) => void} changed @param {import("../core/load.js").Loaded<any>} loaded */
function head(job, changed, loaded) {
  const at = ticking();
  const shown = computed(() => job.value.status);
  const isPaused = () => shown.value === "paused";
  const isOver = () => isClosed(shown.value) || shown.value === "cancelling";
  // Each button is one element for as long as the screen is there, however often the job changes under it.
  const act = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {() => any} */ run, more = {}) => h("button", { type: "button", ...more, on: { click: press(run) } }, icon(picture), label);
  return h(
    "section",
    { class: "stack" },
    h("p", { class: "crumbs" }, h("a", { href: href("/jobs") }, "Jobs"), " / ", job.peek().key),
    h(
      "div",
      { class: "head" },
      h("div", { class: "title" }, h("h1", { class: "mono" }, job.peek().key), () => status(shown.value), h("span", { class: "chip" }, job.peek().kind)),
      h(
        "div",
        { class: "row" },
        h("button", { type: "button", class: () => (isPaused() ? "main-act" : null), hidden: isOver, on: { click: press(() => (isPaused() ? resume : pause)(job.peek(), changed)) } }, () => (isPaused() ? [icon("play"), "Resume"] : [icon("pause"), "Pause"])),
        act("Cancel …", "ban", () => cancel(job.peek(), changed), { class: "danger", hidden: isOver }),
        act("Reprocess failed …", "retry", () => reprocess(job.peek(), { statuses: ["failed"] }, loaded.again), { disabled: () => job.value.counts.failed === 0, title: () => (job.value.counts.failed ? null : "Nothing has failed") }),
        act("Export …", "down", () => exportJob(job.peek())),
        menuButton("More actions", () => jobActions(job.peek(), changed, () => go("/jobs")), { class: "icon-only" }),
      ),
    ),
    () => (job.value.failure_reason ? h("p", { class: "notice", data: { tone: "bad" } }, `It failed: ${job.value.failure_reason}`) : null),
    h(
      "div",
      { class: "card stack" },
      h("dl", { class: "figures" }, h("div", null, h("dt", null, () => (job.value.ingest_complete ? "total" : "read so far")), h("dd", null, () => count(job.value.counts.total))), FIGURES.map(([name, said, colour]) => h("div", { hidden: () => job.value.counts[name] === 0 && !["done", "failed", "pending"].includes(name) }, h("dt", null, h("span", { class: "swatch", style: { "--swatch": `var(${colour})` } }), said), h("dd", null, () => count(job.value.counts[name]))))),
      h("div", { class: "row" }, h("div", { class: "grow" }, progressBar(() => job.value.counts)), h("strong", { class: "number" }, () => percent(settled(job.value.counts), job.value.counts.total))),
      h("p", { class: "row small muted" }, () => pace(job.value, at.value)),
    ),
  );
}

/** @param {any} job @param {number} at */
function pace(job, at) {
  const { rates } = job;
  const parts = [`average ${rate(rates.average_per_s)}`];
  if (!isClosed(job.status)) {
    parts.unshift(`now ${rate(rates.now_per_s)}`);
    const found = estimate(rates, job.created_at, at);
    parts.push(found.isKnown ? `done in ${found.text}` : `no estimate: ${found.text}`);
  } else parts.push(`${words(job.status)} ${ago(job.closed_at, at)}`);
  return [parts.map((one) => h("span", { class: "number" }, one)), h("span", { title: wholeMoment(job.created_at) }, `submitted ${ago(job.created_at, at)} by ${userName(job.user_id)}`)];
}
