// @ts-check
/** An import: what a trial has found, how to mend it, how to make it real; and how the real one goes. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, duration, estimate, moment, rate, wholeMoment } from "../core/format.js";
import { load } from "../core/load.js";
import { href } from "../core/router.js";
import { computed, effect, untracked } from "../core/signal.js";
import { lookAt, onJobs } from "../core/sse.js";
import { failure, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { press } from "../ui/press.js";
import { progressBar } from "../ui/progress.js";
import { isClosed, status } from "../ui/status.js";
import { tellIfFails } from "../ui/toast.js";
import { cancel, pause, resume } from "./job-acts.js";
import { findings } from "./import-findings.js";
import { promote, workbook } from "./import-acts.js";
import { stepBar } from "./import-steps.js";

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} given */
export function screen({ params }) {
  const name = params.peek().import;
  const found = load((signal) => api.get(`/v1/imports/${encodeURIComponent(name)}`, {}, signal));
  const job = /** @type {import("../core/signal.js").Signal<any>} */ (found.data);
  onJobs((jobs) => {
    const news = jobs.find((one) => one.id === job.peek()?.job_id);
    if (news === undefined) return;
    job.value = { ...job.peek(), status: news.status, counts: news.counts, failure_reason: news.failure_reason };
    if (isClosed(news.status)) found.again();
    else found.soon(1_500);
  }, found);
  lookAt(() => (job.value !== null && !isClosed(job.value.status) ? job.value.job_id : null));
  effect(() => {
    if (job.value) document.title = `${job.value.key} · Imports · Tidemill`;
  });
  const isThere = computed(() => job.value !== null);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/imports") }, "Imports"), " / ", h("span", { class: "mono" }, () => job.value?.key ?? name)),
    () => (found.error.value ? [isThere.peek() ? null : h("h1", null, "Import"), failure(found.error.value, found.again)] : null),
    () => (!isThere.value && !found.error.value ? waiting() : null),
    () => (isThere.value ? untracked(() => body(job, found.again)) : null),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => Promise<void>} again */
function body(job, again) {
  const { key, file_name, resource_type, validate_only: isTrial } = job.peek();
  let hadFailed = false; // what was mended here stays in sight
  const hasFailed = computed(() => (hadFailed ||= job.value.counts.failed > 0));
  const kin = computed(() => job.value.promoted_to ?? job.value.promoted_from ?? null);
  return [
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", null, file_name ?? key), () => status(job.value.status), h("span", { class: "chip" }, isTrial ? "trial" : job.peek().mode)), acts(job, again)),
    stepBar(() => (isTrial ? "check" : "import"), () => null),
    () => (job.value.failure_reason ? h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, job.value.failure_reason) : null),
    () => (kin.value ? origin(job.peek()) : null),
    progress(job),
    () => verdict(job.value),
    () => (hasFailed.value ? untracked(() => findings(job)) : null),
    facts(job, resource_type),
  ];
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => Promise<void>} again */
function acts(job, again) {
  const asJob = () => ({ id: job.peek().job_id, key: job.peek().key });
  const isOpen = () => !isClosed(job.value.status);
  const isTrial = job.peek().validate_only;
  const why = () => (isOpen() ? `the check is ${job.value.status}` : job.value.counts.done === 0 ? "no row is good" : job.value.failure_reason ? "the check has failed" : null);
  return h(
    "div",
    { class: "row" },
    h("a", { class: "button", href: href(`/jobs/${job.peek().key}`) }, "Its job"),
    menuButton("Download", () => [
      { label: "All rows as a workbook", icon: "down", run: () => workbook(job.peek(), []) },
      { label: "Failed rows as a workbook", icon: "down", run: () => workbook(job.peek(), ["failed"]), why: job.peek().counts.failed ? null : "nothing has failed" },
    ], { content: [icon("down"), "Download"], class: "" }),
    h("button", { type: "button", hidden: () => !isOpen() || job.value.status === "cancelling", on: { click: press(() => (job.peek().status === "paused" ? resume(asJob(), again) : pause(asJob(), again))) } }, () => (job.value.status === "paused" ? [icon("play"), "Resume"] : [icon("pause"), "Pause"])),
    h("button", { type: "button", class: "danger", hidden: () => !isOpen(), on: { click: press(() => cancel(asJob(), again)) } }, icon("ban"), "Cancel …"),
    isTrial ? h("button", { type: "button", class: "main-act", hidden: () => Boolean(job.value.promoted_to), disabled: () => why() !== null, title: why, on: { click: press(() => tellIfFails(async () => promote(await api.get(`/v1/imports/${job.peek().job_id}`)))) } }, icon("play"), () => `Import ${count(job.value.counts.done)} good rows …`) : null,
  );
}

/** @param {any} job */
function origin(job) {
  if (job.promoted_to) return h("p", { class: "notice", data: { tone: "plain" } }, "This trial was made real. ", h("a", { href: href(`/imports/${job.promoted_to}`) }, "To the import"));
  if (job.promoted_from) return h("p", { class: "muted" }, "Made from a trial, with the corrections made there. ", h("a", { href: href(`/imports/${job.promoted_from}`) }, "To the trial"));
  return null;
}

/** @param {import("../core/signal.js").Signal<any>} job */
function progress(job) {
  const counts = () => job.value.counts;
  /** @param {string} label @param {() => any} value @param {string} [colour] */
  const figure = (label, value, colour) => h("div", null, h("dt", null, colour ? h("span", { class: "swatch", style: { "--swatch": `var(${colour})` } }) : null, label), h("dd", null, value));
  const open = () => counts().pending + counts().processing + counts().retry_wait;
  return h(
    "div",
    { class: "card stack" },
    h("dl", { class: "figures" }, figure("rows", () => count(counts().total)), figure(job.peek().validate_only ? "good" : "imported", () => count(counts().done), "--bar-ok"), figure("with errors", () => count(counts().failed), "--bar-bad"), figure("skipped", () => count(counts().skipped), "--bar-other"), figure("open", () => count(open()))),
    progressBar(counts),
    h("p", { class: "hint" }, () => pace(job.value)),
  );
}

/** @param {any} job */
function pace(job) {
  if (!isClosed(job.status)) return `Now ${rate(job.rates.now_per_s)}, on average ${rate(job.rates.average_per_s)}; time left: ${estimate(job.rates, job.created_at).text}`;
  const seconds = (Date.parse(job.completed_at ?? "") - Date.parse(job.created_at)) / 1000;
  return `Closed ${moment(job.completed_at)}${Number.isNaN(seconds) ? "" : ` after ${duration(seconds)}`}`;
}

/** In one sentence. @param {any} job */
function verdict(job) {
  if (!isClosed(job.status) || job.failure_reason) return null;
  const { inserted, updated, unchanged } = job.effects;
  const done = `${count(inserted)} ${job.validate_only ? "would be new" : "are new"}, ${count(updated)} changed, ${count(unchanged)} as they were`;
  if (job.counts.failed === 0) return h("p", { class: "notice", role: "status", data: { tone: "plain" } }, icon("check"), job.validate_only ? `Nothing is wrong with any row. ${done}.` : `All rows are in ${job.resource_type}. ${done}.`);
  return h("p", { class: "muted", role: "status" }, `${done}.`);
}

/** @param {import("../core/signal.js").Signal<any>} job @param {string} resource */
function facts(job, resource) {
  const layout = () => Object.entries(job.value.layout).map(([name, value]) => `${name.replaceAll("_", " ")} ${JSON.stringify(value)}`).join(", ");
  const mapping = () => Object.entries(job.value.mapping).map(([column, field]) => (column === field ? column : `${column} → ${field}`)).join(", ");
  /** @param {string} label @param {() => any} value */
  const fact = (label, value) => [h("dt", null, label), h("dd", null, value)];
  return h(
    "details",
    { class: "card" },
    h("summary", null, "How it was read and planned"),
    h("dl", { class: "facts" }, fact("Into", () => resource), fact("Key", () => job.value.resource_key.join(", ") || "none"), fact("Same keys in the file", () => job.value.duplicates), fact("When rows fail", () => job.value.policy.mode ?? "continue"), fact("Layout", layout), fact("Columns", mapping), fact("Submitted", () => wholeMoment(job.value.created_at)), fact("First row read", () => wholeMoment(job.value.started_at) || "not yet")),
  );
}
