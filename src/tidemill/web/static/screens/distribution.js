// @ts-check
/** A distribution: how far it is, and for each input where its file is, and whether it was made or used again. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { bytes, count, counted, moment } from "../core/format.js";
import { cellText } from "../core/json.js";
import { load } from "../core/load.js";
import { address } from "../core/place.js";
import { href } from "../core/router.js";
import { computed, effect, onCleanup, untracked } from "../core/signal.js";
import { isLive, lookAt, onJobs } from "../core/sse.js";
import { confirmDialog } from "../ui/dialog.js";
import { openDrawer } from "../ui/drawer.js";
import { copyButton, failure, waiting } from "../ui/empty.js";
import { makeGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { progressBar } from "../ui/progress.js";
import { CursorSource } from "../ui/source.js";
import { isClosed, setStatus, status } from "../ui/status.js";
import { toast } from "../ui/toast.js";
import { cancel } from "./job-acts.js";

const TALLIED = ["done", "failed", "cancelled", "retry_wait", "status"];
const FOLLOWS_MS = 1_000;
const OWN = ["status", "attempts", "path", "download_url", "rows", "size", "sha256", "reused", "error"];

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} given */
export function screen({ params }) {
  const name = params.peek().distribution;
  const found = load((signal) => api.get(`/v1/distributions/${encodeURIComponent(name)}`, { page_size: 1 }, signal));
  const job = /** @type {import("../core/signal.js").Signal<any>} */ (found.data);
  onJobs((jobs) => {
    const news = jobs.find((one) => one.id === job.peek()?.job_id);
    if (news === undefined) return;
    job.value = { ...job.peek(), ...news.counts, status: news.status, error_message: news.failure_reason ?? job.peek().error_message };
    if (isClosed(news.status)) found.again();
    else found.soon(1_500);
  }, found);
  lookAt(() => (job.value !== null && !isClosed(job.value.status) ? job.value.job_id : null));
  const isThere = computed(() => job.value !== null);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/distributions") }, "Distributions"), " / ", h("span", { class: "mono" }, () => job.value?.key ?? name)),
    () => (found.error.value ? [isThere.peek() ? null : h("h1", null, "Distribution"), failure(found.error.value, found.again)] : null),
    () => (!isThere.value && !found.error.value ? waiting() : null),
    () => (isThere.value ? untracked(() => body(job, found.again)) : null),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => Promise<void>} again */
function body(job, again) {
  const one = job.peek();
  /** @param {string} label @param {() => any} value @param {string} [colour] */
  const figure = (label, value, colour) => h("div", null, h("dt", null, colour ? h("span", { class: "swatch", style: { "--swatch": `var(${colour})` } }) : null, label), h("dd", null, value));
  return [
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", null, `${one.dataset}, ${one.key}`), () => status(job.value.status), h("span", { class: "chip" }, one.compression === "none" ? one.format : `${one.format}, ${one.compression}`)), acts(job, again)),
    () => (job.value.error_message ? h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, job.value.error_message) : null),
    h(
      "div",
      { class: "card stack" },
      h("dl", { class: "figures" }, figure("inputs", () => count(job.value.total)), figure("done", () => count(job.value.done), "--bar-ok"), figure("files generated", () => count(job.value.files_generated)), figure("files reused", () => count(job.value.files_reused)), figure("failed", () => count(job.value.failed), "--bar-bad"), figure("cancelled", () => count(job.value.cancelled), "--bar-other"), figure("retrying", () => count(job.value.retry_wait), "--bar-retry"), figure("processing", () => count(job.value.processing), "--bar-run"), figure("pending", () => count(job.value.pending))),
      progressBar(() => job.value),
      h("p", { class: "hint" }, one.reuse.enabled ? `Files of inputs that are final for ${counted(one.reuse.days, "day")} are used again. ` : "Every file is made anew. ", one.policy.mode === "continue" ? "An input that fails leaves the others alone." : "One input that fails, fails all.", () => ` Submitted ${moment(one.created_at)}${job.value.completed_at ? `, closed ${moment(job.value.completed_at)}` : ""}.`),
    ),
    inputsGrid(job),
  ];
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => Promise<void>} again */
function acts(job, again) {
  const isOpen = () => !isClosed(job.value.status);
  const asJob = () => ({ id: job.peek().job_id, key: job.peek().key });
  const redrive = () =>
    confirmDialog({
      title: `Redrive ${counted(job.peek().failed, "failed input")}?`,
      says: [h("p", null, `They go round again with fresh attempts${job.peek().cancelled ? `, and so do ${counted(job.peek().cancelled, "input")} that were cancelled because of them` : ""}. Files that are there stay.`)],
      act: "Redrive",
      run: async () => {
        const operation = await api.post(`/v1/distributions/${job.peek().job_id}/redrive`);
        toast(`${counted(operation.items, "input")} sent round again`, "ok");
        await again();
      },
    });
  return h(
    "div",
    { class: "row" },
    h("a", { class: "button", href: href(`/jobs/${job.peek().key}`) }, "Its job"),
    h("button", { type: "button", class: "danger", hidden: () => !isOpen(), on: { click: () => cancel(asJob(), again) } }, icon("ban"), "Cancel …"),
    h("button", { type: "button", class: "main-act", hidden: () => job.value.failed === 0, on: { click: redrive } }, icon("retry"), "Redrive failed …"),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job */
function inputsGrid(job) {
  const { job_id } = job.peek();
  const first = job.peek().data_content[0] ?? {};
  const fields = Object.keys(first).filter((name) => !OWN.includes(name));
  const source = new CursorSource(async (after, size, signal) => {
    const page = await api.get(`/v1/distributions/${job_id}`, { page_size: size, after }, signal);
    return { rows: page.data_content, next: page.next_page ?? null };
  });
  const foot = h("div", { class: "grid-foot", role: "status" }, () => `${counted(job.value.total, "input")}, in the order they came in`);
  const grid = makeGrid({
    label: "Inputs",
    source,
    keyOf: (one) => one.path ?? "",
    nameOf: (one) => nameOf(one, fields),
    columns: [
      ...fields.map((name) => ({ label: name, width: "minmax(8rem, 1fr)", show: (/** @type {HTMLElement} */ cell, /** @type {any} */ one) => (cell.textContent = cellText(one[name])) })),
      { label: "Status", width: "9rem", show: showStatus },
      { label: "File", width: "8rem", show: showReuse },
      { label: "Download", width: "6.5rem", show: (cell, one) => showDownload(cell, one, fields) },
      { label: "Rows", width: "6rem", align: "right", show: (cell, one) => (cell.textContent = one.rows === null || one.rows === undefined ? "–" : count(one.rows)) },
      { label: "Size", width: "6.5rem", align: "right", show: (cell, one) => (cell.textContent = bytes(one.size)) },
      { label: "Path, or what went wrong", width: "minmax(14rem, 3fr)", show: showPath },
    ],
    onOpen: (one) => openInput(one, fields),
    foot,
  });
  // Inputs stay where they are: what has become of them is shown in place.
  const tally = computed(() => TALLIED.map((name) => job.value[name]).join(" "));
  let shown = tally.peek();
  let timer = 0;
  effect(() => {
    if (tally.value !== shown && isLive.value) timer ||= window.setTimeout(follow, FOLLOWS_MS);
  });
  onCleanup(() => window.clearTimeout(timer));
  function follow() {
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
  if (there) setStatus(there, one.status);
  else cell.replaceChildren(status(one.status));
}

/** @param {HTMLElement} cell @param {any} one */
function showReuse(cell, one) {
  if (one.reused === null || one.reused === undefined) cell.textContent = "–";
  else cell.replaceChildren(h("span", { class: "chip", data: { reused: String(one.reused) } }, icon(one.reused ? "retry" : "plus"), one.reused ? "reused" : "generated"));
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
  return h("a", { href: address(one.download_url), download: "", tabindex: "-1", "aria-label": `Download ${nameOf(one, fields)}` }, "Download");
}

/** An input by its values. @param {any} one @param {string[]} fields */
function nameOf(one, fields) {
  return fields.map((name) => cellText(one[name])).join(" ");
}

/** Its end, which tells it from others. @param {string} path */
function shortPath(path) {
  const steps = path.split("/");
  return steps.length > 3 ? `…/${steps.slice(-2).join("/")}` : path;
}

/** @param {any} one @param {string[]} fields */
function openInput(one, fields) {
  const facts = [...fields.map((name) => [name, cellText(one[name])]), ["Attempts", count(one.attempts)], ["File", one.reused === true ? "used again" : one.reused === false ? "generated" : "none"], ["Rows", one.rows === null ? "–" : count(one.rows)], ["Size", bytes(one.size)], ["SHA-256", one.sha256 ?? "–"]];
  openDrawer(
    fields.map((name) => cellText(one[name])).join(" · "),
    () => [
      h("div", { class: "row" }, status(one.status), one.error ? h("span", { class: "fault" }, `${one.error.code}: ${one.error.reason}`) : null),
      h("dl", { class: "facts" }, facts.map(([label, value]) => [h("dt", null, label), h("dd", { class: label === "SHA-256" ? "mono" : null }, value)])),
      one.path ? h("div", { class: "stack tight" }, h("h3", null, "Path"), h("code", { class: "path" }, one.path), h("div", { class: "row" }, h("a", { class: "button small", href: address(one.download_url), download: "" }, icon("down"), "Download"), copyButton(one.path, "Copy the path", "Copy path"))) : null,
    ],
  );
}
