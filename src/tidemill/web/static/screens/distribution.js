// @ts-check
/** The distribution screen: progress, and for each input its file and whether it was generated or reused. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatBytes, formatNumber, formatTime, pluralize } from "../core/format.js";
import { setTabTitle } from "../core/job-names.js";
import { cellText } from "../core/json.js";
import { isLive, onJobUpdates, watchJob } from "../core/live-updates.js";
import { remoteData } from "../core/remote-data.js";
import { href } from "../core/router.js";
import { computed, effect, onCleanup, untracked } from "../core/signal.js";
import { toUrl } from "../core/url.js";
import { copyButton } from "../ui/copy-button.js";
import { confirmDialog } from "../ui/dialog.js";
import { openDrawer } from "../ui/drawer.js";
import { createGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { errorNotice, loadingNotice } from "../ui/notices.js";
import { progressBar } from "../ui/progress-bar.js";
import { CursorRowSource } from "../ui/row-source.js";
import { isClosed, statusBadge, updateStatusBadge } from "../ui/status.js";
import { showToast } from "../ui/toast.js";
import { cancelJob } from "./job-actions.js";

const WATCHED_COUNTS = ["done", "failed", "cancelled", "retry_wait", "status"];
const RELOAD_DELAY_MS = 1_000;
const RESULT_FIELDS = new Set(["status", "attempts", "path", "download_url", "rows", "size", "sha256", "reused", "error"]);

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} options */
export function screen({ params }) {
  const name = params.peek().distribution;
  const found = remoteData((signal) => api.get(`/v1/distributions/${encodeURIComponent(name)}`, { page_size: 1 }, signal));
  const job = /** @type {import("../core/signal.js").Signal<any>} */ (found.data);
  onJobUpdates((jobs) => {
    const updated = jobs.find((one) => one.id === job.peek()?.job_id);
    if (updated === undefined) return;
    job.value = { ...job.peek(), ...updated.counts, status: updated.status, error_message: updated.failure_reason ?? job.peek().error_message };
    if (isClosed(updated.status)) found.reload();
    else found.reloadSoon(1_500);
  }, found);
  watchJob(() => (job.value !== null && !isClosed(job.value.status) ? job.value.job_id : null));
  const isThere = computed(() => job.value !== null);
  effect(() => {
    if (isThere.value) setTabTitle(`Distribution of ${job.peek().dataset}`, job.peek().key);
  });
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/distributions") }, "Distributions"), " / ", h("span", { class: "mono" }, () => job.value?.key ?? name)),
    () => (found.error.value ? [isThere.peek() ? null : h("h1", null, "Distribution"), errorNotice(found.error.value, found.reload)] : null),
    () => (!isThere.value && !found.error.value ? loadingNotice() : null),
    () => (isThere.value ? untracked(() => body(job, found.reload)) : null),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => Promise<void>} again */
function body(job, again) {
  const one = job.peek();
  /** @param {string} label @param {() => any} value @param {string} [colour] */
  const figure = (label, value, colour) => h("div", null, h("dt", null, colour ? h("span", { class: "swatch", style: { "--swatch": `var(${colour})` } }) : null, label), h("dd", null, value));
  return [
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", null, `Distribution of ${one.dataset} `, h("small", { class: "mono muted" }, one.key)), () => statusBadge(job.value.status), h("span", { class: "chip" }, one.compression === "none" ? one.format : `${one.format}, ${one.compression}`)), actionButtons(job, again)),
    () => (job.value.error_message ? h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, job.value.error_message) : null),
    h(
      "div",
      { class: "card stack" },
      h("dl", { class: "figures" }, figure("inputs", () => formatNumber(job.value.total)), figure("done", () => formatNumber(job.value.done), "--bar-ok"), figure("files generated", () => formatNumber(job.value.files_generated)), figure("files reused", () => formatNumber(job.value.files_reused)), figure("failed", () => formatNumber(job.value.failed), "--bar-bad"), figure("cancelled", () => formatNumber(job.value.cancelled), "--bar-other"), figure("retrying", () => formatNumber(job.value.retry_wait), "--bar-retry"), figure("processing", () => formatNumber(job.value.processing), "--bar-run"), figure("pending", () => formatNumber(job.value.pending))),
      progressBar(() => job.value),
      h("p", { class: "hint" }, one.reuse.enabled ? `Existing files are reused if the input's date is at least ${pluralize(one.reuse.days, "day")} ago. ` : "Every file is regenerated. ", one.policy.mode === "continue" ? "If an input fails, the others continue." : "If an input fails, the distribution fails.", () => ` Submitted ${formatTime(one.created_at)}${job.value.completed_at ? `, closed ${formatTime(job.value.completed_at)}` : ""}.`),
    ),
    inputsGrid(job),
  ];
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => Promise<void>} again */
function actionButtons(job, again) {
  const isOpen = () => !isClosed(job.value.status);
  const asJob = () => ({ id: job.peek().job_id, key: job.peek().key });
  const retryFailed = () =>
    confirmDialog({
      title: `Retry ${pluralize(job.peek().failed, "failed input")}?`,
      content: [h("p", null, `They are requeued with new attempts${job.peek().cancelled ? `, and so are ${pluralize(job.peek().cancelled, "input")} that were cancelled because of them` : ""}. Existing files are kept.`)],
      actionLabel: "Retry",
      run: async () => {
        const operation = await api.post(`/v1/distributions/${job.peek().job_id}/redrive`);
        showToast(`Requeued ${pluralize(operation.items, "input")}`, "ok");
        await again();
      },
    });
  return h(
    "div",
    { class: "row" },
    h("a", { class: "button", href: href(`/jobs/${job.peek().key}`) }, "Go to job"),
    h("button", { type: "button", class: "danger", hidden: () => !isOpen(), on: { click: () => cancelJob(asJob(), again) } }, icon("ban"), "Cancel …"),
    h("button", { type: "button", class: "main-act", hidden: () => job.value.failed === 0, on: { click: retryFailed } }, icon("retry"), "Retry failed …"),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job */
function inputsGrid(job) {
  const { job_id } = job.peek();
  const first = job.peek().data_content[0] ?? {};
  const fields = Object.keys(first).filter((name) => !RESULT_FIELDS.has(name));
  const source = new CursorRowSource(async (after, size, signal) => {
    const page = await api.get(`/v1/distributions/${job_id}`, { page_size: size, after }, signal);
    return { rows: page.data_content, next: page.next_page ?? null };
  });
  const footer = h("div", { class: "grid-foot", role: "status" }, () => `${pluralize(job.value.total, "input")}, in submission order`);
  const grid = createGrid({
    label: "Inputs",
    source,
    keyOf: (one) => one.path ?? "",
    nameOf: (one) => inputName(one, fields),
    columns: [
      ...fields.map((name) => ({ label: name, width: "minmax(8rem, 1fr)", show: (/** @type {HTMLElement} */ cell, /** @type {any} */ one) => (cell.textContent = cellText(one[name])) })),
      { label: "Status", width: "9rem", show: showStatus },
      { label: "File", width: "8rem", show: showFileOrigin },
      { label: "Download", width: "6.5rem", show: (cell, one) => showDownload(cell, one, fields) },
      { label: "Rows", width: "6rem", align: "right", show: (cell, one) => (cell.textContent = one.rows === null || one.rows === undefined ? "–" : formatNumber(one.rows)) },
      { label: "Size", width: "6.5rem", align: "right", show: (cell, one) => (cell.textContent = formatBytes(one.size)) },
      { label: "Path or error", width: "minmax(14rem, 3fr)", show: showPath },
    ],
    onOpen: (one) => openInput(one, fields),
    footer,
  });
  // Inputs keep their position; reload the rows in place.
  const tally = computed(() => WATCHED_COUNTS.map((name) => job.value[name]).join(" "));
  let shown = tally.peek();
  let timer = 0;
  effect(() => {
    if (tally.value !== shown && isLive.value) timer ||= window.setTimeout(reloadRows, RELOAD_DELAY_MS);
  });
  onCleanup(() => window.clearTimeout(timer));
  function reloadRows() {
    timer = 0;
    if (!isLive.peek()) return;
    shown = tally.peek();
    source.reload();
  }
  return grid.element;
}

/** @param {HTMLElement} cell @param {any} one */
function showStatus(cell, one) {
  const there = /** @type {HTMLElement | null} */ (cell.querySelector(".status"));
  if (there) updateStatusBadge(there, one.status);
  else cell.replaceChildren(statusBadge(one.status));
}

/** @param {HTMLElement} cell @param {any} one */
function showFileOrigin(cell, one) {
  if (one.reused === null || one.reused === undefined) cell.textContent = "–";
  else cell.replaceChildren(h("span", { class: "chip", data: { reused: String(one.reused) } }, icon(one.reused ? "check" : "plus"), one.reused ? "reused" : "generated"));
}

/** @param {HTMLElement} cell @param {any} one */
function showPath(cell, one) {
  cell.textContent = one.path ? shortPath(one.path) : (one.error?.reason ?? "–");
  cell.title = one.path ?? cell.textContent;
  cell.classList.toggle("fault", !one.path && Boolean(one.error));
}

/** @param {HTMLElement} cell @param {any} one @param {string[]} fields */
function showDownload(cell, one, fields) {
  cell.replaceChildren(one.download_url ? downloadLink(one, fields) : "–");
}

/** @param {any} one @param {string[]} fields */
function downloadLink(one, fields) {
  return h("a", { href: toUrl(one.download_url), download: "", tabindex: "-1", "aria-label": `Download ${inputName(one, fields)}` }, "Download");
}

/** The values of an input, as its name. @param {any} one @param {string[]} fields */
function inputName(one, fields) {
  return fields.map((name) => cellText(one[name])).join(" ");
}

/** The end of the path, which differs between files. @param {string} path */
function shortPath(path) {
  const steps = path.split("/");
  return steps.length > 3 ? `…/${steps.slice(-2).join("/")}` : path;
}

/** @param {any} one @param {string[]} fields */
function openInput(one, fields) {
  const facts = [...fields.map((name) => [name, cellText(one[name])]), ["Attempts", formatNumber(one.attempts)], ["File", one.reused === true ? "reused" : one.reused === false ? "generated" : "none"], ["Rows", one.rows === null ? "–" : formatNumber(one.rows)], ["Size", formatBytes(one.size)], ["SHA-256", one.sha256 ?? "–"]];
  openDrawer(
    fields.map((name) => cellText(one[name])).join(" · "),
    () => [
      h("div", { class: "row" }, statusBadge(one.status), one.error ? h("span", { class: "fault" }, `${one.error.code}: ${one.error.reason}`) : null),
      h("dl", { class: "facts" }, facts.map(([label, value]) => [h("dt", null, label), h("dd", { class: label === "SHA-256" ? "mono" : null }, value)])),
      one.path ? h("div", { class: "stack tight" }, h("h3", null, "Path"), h("code", { class: "path" }, one.path), h("div", { class: "row" }, h("a", { class: "button small", href: toUrl(one.download_url), download: "" }, icon("down"), "Download"), copyButton(one.path, "Copy the path", "Copy path"))) : null,
    ],
  );
}
