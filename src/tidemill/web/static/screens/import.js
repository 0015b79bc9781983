// @ts-check
/** The import screen: the result of a dry run, its errors, and the progress of an import. */
import { api, serverNow } from "../core/api.js";
import { h } from "../core/dom.js";
import { estimateTimeLeft, formatDateTime, formatNumber, formatRate, formatTime, pluralize } from "../core/format.js";
import { durationText, queuedText, setTabTitle } from "../core/job-names.js";
import { onJobUpdates, watchJob } from "../core/live-updates.js";
import { remoteData } from "../core/remote-data.js";
import { href } from "../core/router.js";
import { computed, effect, untracked } from "../core/signal.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { errorNotice, loadingNotice } from "../ui/notices.js";
import { progressBar } from "../ui/progress-bar.js";
import { singleFlight } from "../ui/single-flight.js";
import { isClosed, statusBadge } from "../ui/status.js";
import { toastOnError } from "../ui/toast.js";
import { downloadFile, downloadWorkbook, promoteImport } from "./import-actions.js";
import { importErrors } from "./import-errors.js";
import { importUndo } from "./import-undo.js";
import { stepBar } from "./import-steps.js";
import { cancelJob, pauseJob, resumeJob } from "./job-actions.js";

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} options */
export function screen({ params }) {
  const name = params.peek().import;
  const found = remoteData((signal) => api.get(`/v1/imports/${encodeURIComponent(name)}`, {}, signal));
  const job = /** @type {import("../core/signal.js").Signal<any>} */ (found.data);
  onJobUpdates((jobs) => {
    const updated = jobs.find((one) => one.id === job.peek()?.job_id);
    if (updated === undefined) return;
    job.value = { ...job.peek(), status: updated.status, counts: updated.counts, failure_reason: updated.failure_reason, started_at: updated.started_at, idle_s: updated.idle_s };
    if (isClosed(updated.status)) found.reload();
    else found.reloadSoon(1_500);
  }, found);
  watchJob(() => (job.value !== null && !isClosed(job.value.status) ? job.value.job_id : null));
  effect(() => {
    if (job.value) setTabTitle(importTitle(job.value), job.value.file_name, job.value.key);
  });
  const isThere = computed(() => job.value !== null);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/imports") }, "Imports"), " / ", h("span", { class: "mono" }, () => job.value?.key ?? name)),
    () => (found.error.value ? [isThere.peek() ? null : h("h1", null, "Import"), errorNotice(found.error.value, found.reload)] : null),
    () => (!isThere.value && !found.error.value ? loadingNotice() : null),
    () => (isThere.value ? untracked(() => body(job, found.reload)) : null),
  );
}

/** @param {any} job */
function importTitle(job) {
  return `Import into ${job.resource_type}`;
}

/** Moves the focus to the heading of a new step, unless the user has already moved it. @param {HTMLElement} heading */
function focusHeading(heading) {
  queueMicrotask(() => {
    const active = document.activeElement;
    if (active === null || active === document.body || active.id === "main") heading.focus({ preventScroll: true });
  });
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => Promise<void>} again */
function body(job, again) {
  const { key, file_name, resource_type, validate_only: isDryRun } = job.peek();
  let hadFailed = false; // a fixed row stays visible until no row has errors
  const hasFailed = computed(() => (hadFailed ||= job.value.counts.failed > 0));
  const undo = importUndo(job, again);
  const relatedImport = computed(() => job.value.promoted_to ?? job.value.promoted_from ?? null);
  return [
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", { tabindex: "-1", ref: focusHeading }, importTitle(job.peek()), h("span", { class: "file-name" }, ` ${file_name ?? key}`)), () => statusBadge(job.value.status), h("span", { class: "chip" }, isDryRun ? "dry run" : job.peek().mode)), actionButtons(job, again, undo.buttons)),
    stepBar(() => (isDryRun ? "check" : "import"), () => null),
    () => (job.value.failure_reason ? h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, job.value.failure_reason) : null),
    () => (relatedImport.value ? originNotice(job.peek()) : null),
    progress(job),
    () => summaryNotice(job.value),
    undo.notice,
    () => (hasFailed.value ? untracked(() => importErrors(job, again)) : null),
    facts(job, resource_type),
  ];
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => Promise<void>} again @param {HTMLElement[]} undoButtons */
function actionButtons(job, again, undoButtons) {
  const asJob = () => ({ id: job.peek().job_id, key: job.peek().key });
  const isOpen = () => !isClosed(job.value.status);
  const isDryRun = job.peek().validate_only;
  const disabledReason = () => (isOpen() ? `The check is ${job.value.status}` : job.value.counts.done === 0 ? "No row is valid" : job.value.failure_reason ? "The check failed" : null);
  return h(
    "div",
    { class: "row" },
    h("a", { class: "button", href: href(`/jobs/${job.peek().key}`) }, "Go to job"),
    menuButton("Download", () => [
      { label: "All rows as a workbook", icon: "down", run: () => downloadWorkbook(job.peek(), []) },
      { label: "Failed rows as a workbook", icon: "down", run: () => downloadFile(`/v1/imports/${job.peek().job_id}/errors.xlsx`), disabledReason: job.peek().counts.failed ? null : "No failed rows" },
    ], { content: [icon("down"), "Download"], class: "" }),
    undoButtons,
    h("button", { type: "button", hidden: () => !isOpen() || job.value.status === "cancelling", on: { click: singleFlight(() => (job.peek().status === "paused" ? resumeJob(asJob(), again) : pauseJob(asJob(), again))) } }, () => (job.value.status === "paused" ? [icon("play"), "Resume"] : [icon("pause"), "Pause"])),
    h("button", { type: "button", class: "danger", hidden: () => !isOpen(), on: { click: singleFlight(() => cancelJob(asJob(), again)) } }, icon("ban"), "Cancel …"),
    isDryRun ? h("button", { type: "button", class: "main-act", hidden: () => Boolean(job.value.promoted_to), disabled: () => disabledReason() !== null, title: disabledReason, on: { click: singleFlight(() => toastOnError(async () => promoteImport(await api.get(`/v1/imports/${job.peek().job_id}`)))) } }, icon("import"), () => `Import ${pluralize(job.value.counts.done, "valid row")} …`) : null,
  );
}

/** @param {any} job */
function originNotice(job) {
  if (job.promoted_to) return h("p", { class: "notice", data: { tone: "plain" } }, "This dry run was promoted to an import. ", h("a", { href: href(`/imports/${job.promoted_to}`) }, "Go to the import"));
  if (job.promoted_from) return h("p", { class: "muted" }, "Promoted from a dry run, with its fixes. ", h("a", { href: href(`/imports/${job.promoted_from}`) }, "Go to the dry run"));
  return null;
}

/** @param {import("../core/signal.js").Signal<any>} job */
function progress(job) {
  const counts = () => job.value.counts;
  /** @param {string} label @param {() => any} value @param {string} [colour] */
  const figure = (label, value, colour) => h("div", null, h("dt", null, colour ? h("span", { class: "swatch", style: { "--swatch": `var(${colour})` } }) : null, label), h("dd", null, value));
  const waiting = () => counts().pending + counts().processing + counts().retry_wait;
  return h(
    "div",
    { class: "card stack" },
    h("dl", { class: "figures" }, figure("rows", () => formatNumber(counts().total)), figure(job.peek().validate_only ? "valid" : "imported", () => formatNumber(counts().done), "--bar-ok"), figure("with errors", () => formatNumber(counts().failed), "--bar-bad"), figure("skipped", () => formatNumber(counts().skipped), "--bar-other"), figure("waiting", () => formatNumber(waiting()))),
    progressBar(counts),
    h("p", { class: "hint" }, () => progressText(job.value)),
  );
}

/** @param {any} job */
function progressText(job) {
  if (!isClosed(job.status)) return `Now ${formatRate(job.rates.now_per_s)}, on average ${formatRate(job.rates.average_per_s)}; time left: ${estimateTimeLeft(job.rates, job.started_at ?? job.created_at).text}`;
  const end = job.status === "cancelled" ? "Cancelled" : job.status === "failed" ? "Failed" : "Finished";
  const ended = `${end} ${formatTime(job.completed_at)} ${job.started_at ? `in ${durationText(job, serverNow())}` : "before it started"}`;
  return [ended, queuedText(job, serverNow())].filter(Boolean).join(", ");
}

/** The result in one sentence. @param {any} job */
function summaryNotice(job) {
  if (!isClosed(job.status) || job.failure_reason) return null;
  const { inserted, updated, unchanged } = job.effects;
  const done = `${formatNumber(inserted)} ${job.validate_only ? "to insert" : "inserted"}, ${formatNumber(updated)} ${job.validate_only ? "to update" : "updated"}, ${formatNumber(unchanged)} unchanged${createdText(job)}`;
  if (job.counts.failed === 0) return h("p", { class: "notice", role: "status", data: { tone: "plain" } }, icon("check"), job.validate_only ? `All rows are valid: ${done}.` : `All rows were imported into ${job.resource_type}: ${done}.`);
  return h("p", { class: "muted", role: "status" }, `${done}.`);
}

/** The rows that lookups created in other tables. @param {any} job */
function createdText(job) {
  return Object.entries(job.created_references ?? {}).map(([table, count]) => `, ${formatNumber(/** @type {number} */ (count))} ${job.validate_only ? "to create" : "created"} in ${table}`).join("");
}

/** @param {import("../core/signal.js").Signal<any>} job @param {string} resource */
function facts(job, resource) {
  const layout = () => Object.entries(job.value.layout).map(([name, value]) => `${name.replaceAll("_", " ")} ${JSON.stringify(value)}`).join(", ");
  const mapping = () => Object.entries(job.value.mapping).map(([column, field]) => (column === field ? column : `${column} → ${field}`)).join(", ");
  const formats = () => Object.entries(job.value.formats).toSorted().map(([field, format]) => `${field}: ${format}${job.value.assumed.includes(field) ? " (assumed)" : ""}`).join(", ") || "plain";
  const rules = () => [...Object.entries(job.value.constants).map(([field, text]) => `${field} is "${text}"`), ...Object.entries(job.value.computed).map(([field, text]) => `${field} = ${text}`), ...job.value.skip.map((/** @type {string} */ text) => `skip rows where ${text}`)].join("; ") || "none";
  const lookups = () => Object.entries(job.value.lookups ?? {}).map(([field, by]) => `${field} by ${by.join(", ")}${job.value.create_missing.includes(field) ? " (creates missing rows)" : ""}`).join("; ") || "none";
  /** @param {string} label @param {() => any} value */
  const fact = (label, value) => [h("dt", null, label), h("dd", null, value)];
  return h(
    "details",
    { class: "card" },
    h("summary", null, "Import settings"),
    h("dl", { class: "facts" }, fact("Table", () => resource), fact("Key", () => job.value.resource_key.join(", ") || "none"), fact("Duplicate keys in the file", () => job.value.duplicates), fact("When rows fail", () => job.value.policy.mode ?? "continue"), fact("Layout", layout), fact("Columns", mapping), fact("Formats", formats), fact("Lookups", lookups), fact("Rules for all rows", rules), fact("Submitted", () => formatDateTime(job.value.created_at)), fact("Started", () => formatDateTime(job.value.started_at) || "not yet")),
  );
}
