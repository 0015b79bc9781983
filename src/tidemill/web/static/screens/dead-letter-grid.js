// @ts-check
/** The failed items with one error code in a grid, and the actions on the selected rows. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatDateTime, formatNumber, formatTime, humanize, pluralize, summaryText } from "../core/format.js";
import { ownerScope } from "../core/live-updates.js";
import { href } from "../core/router.js";
import { effect, signal, untracked } from "../core/signal.js";
import { createGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { emptyState } from "../ui/notices.js";
import { CursorRowSource } from "../ui/row-source.js";
import { Selection } from "../ui/selection.js";
import { singleFlight } from "../ui/single-flight.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { openItemDrawer } from "./item-drawer.js";
import { redriveAll, redriveOne } from "./redrive.js";
import { MAX_IDS, tooManyMessage } from "./selection-actions.js";

/**
 * @param {string} code
 * @param {import("./redrive.js").DeadFilter} filter
 * @param {() => import("./redrive.js").Counted} matching
 * @param {{job?: string, done: () => void}} options
 */
export function deadLetterGrid(code, filter, matching, options) {
  const source = new CursorRowSource(async (after, size, signal) => {
    const page = await api.get("/v1/dead-letters", { ...filter, user_id: ownerScope.peek(), after, page_size: size }, signal);
    return { rows: page.items, next: page.next_page ?? null };
  });
  const selection = new Selection();
  const done = () => {
    selection.clear();
    seen.value = null;
    source.refresh();
    options.done();
  };
  /** Shows the new state of a single requeued row in place, without moving the others. @param {any} row @param {any} item the item in its latest state; null if it is not known yet */
  const sent = (row, item) => {
    source.updateRow((one) => one.id === row.id, item === null ? { sent: "" } : { sent: item.status, attempts: item.attempts, error: item.error ?? row.error });
    options.done();
  };
  /** The number of matching rows when the grid was loaded. */
  const seen = signal(/** @type {number | null} */ (null));
  effect(() => {
    const { n } = matching();
    if (seen.peek() === null && n) seen.value = n;
  });
  const show = () => {
    seen.value = untracked(matching).n;
    source.refresh();
  };
  const isEmpty = () => (selection.version.value, selection.isEmpty);
  const many = () => `${matching().isExact ? "" : "≤ "}${formatNumber(matching().n)}`;

  async function redrive() {
    const parts = selection.toKeysAndRanges(MAX_IDS);
    if (parts === null) return void showToast(tooManyMessage(selection), "bad");
    const keys = /** @type {string[]} */ (parts.keys);
    return redriveAll(filter, selection.isAll ? { except: keys, job: options.job, done } : { ids: keys, done });
  }

  const footer = h(
    "div",
    { class: () => (isEmpty() ? "grid-foot" : "grid-foot is-chosen") },
    h("span", { role: "status" }, () => {
      if (isEmpty()) return `${many()} with this cause · ${(source.version.value, formatNumber(source.loaded))} loaded`;
      return selection.isAll ? `All ${many()} matching rows${selection.keys.size ? ` except ${formatNumber(selection.keys.size)}` : ""}` : `${pluralize(selection.size(0), "row")} selected`;
    }),
    h("button", { type: "button", class: "link", hidden: () => !isEmpty() || seen.value === null || matching().n === seen.value, on: { click: show } }, "The list has changed – show"),
    h("button", { type: "button", class: "link", hidden: () => isEmpty() || selection.isAll, on: { click: () => selection.selectAll() } }, () => `Select all ${many()} matching`),
    h("span", { class: "spring" }),
    h("span", { class: "row", hidden: isEmpty }, h("button", { type: "button", class: "small main-act", on: { click: singleFlight(() => toastOnError(redrive)) } }, icon("retry"), "Retry selected …"), h("button", { type: "button", class: "small", on: { click: () => selection.clear() } }, "Clear")),
  );
  const grid = createGrid({
    label: `Failed items with cause ${code}`,
    source,
    selection,
    columns: [
      { label: "Job", width: "9.5rem", show: showJob },
      { label: "Row", width: "5.5rem", align: "right", show: (cell, row) => setCellText(cell, formatNumber(row.seq + 1), row.id) },
      { label: "Title / brand", width: "minmax(7rem, 1fr)", show: (cell, row) => setCellText(cell, summaryText(row.input_summary)) },
      { label: "Reason", width: "minmax(11rem, 2fr)", show: (cell, row) => setCellText(cell, row.sent === undefined || row.sent === "failed" ? (row.error?.reason ?? "") : `Retried${row.sent ? `: ${humanize(row.sent)}` : ""}`) },
      { label: "Attempts", width: "5.5rem", align: "right", show: (cell, row) => setCellText(cell, String(row.attempts)) },
      { label: "Failed at", width: "6.5rem", show: (cell, row) => setCellText(cell, formatTime(row.updated_at), formatDateTime(row.updated_at)) },
      { label: "Job type", width: "7rem", show: (cell, row) => setCellText(cell, row.kind) },
      { label: "Action", width: "6rem", show: showTry },
    ],
    keyOf: (row) => row.id,
    nameOf: (row) => `row ${formatNumber(row.seq + 1)} of ${row.job_key}`,
    onOpen: (row) => openItemDrawer(signal({ id: row.job_id, key: row.job_key, user_id: row.user_id }), row.seq, { changed: (item) => sent(row, item), focusBack: () => grid.focus() }),
    footer,
    emptyContent: () => emptyState({ title: "None left", text: "All rows with this cause were retried." }),
  });
  return grid.element;

  /** @param {HTMLElement} cell @param {any} row */
  function showTry(cell, row) {
    const button = h("button", { type: "button", class: "small plain", tabindex: "-1", on: { click: singleFlight(() => toastOnError(() => redriveOne(filter, { row, job: options.job, done, onResult: sent }))) } }, "Retry …");
    button.setAttribute("aria-label", `Retry row ${formatNumber(row.seq + 1)} of ${row.job_key}`);
    cell.replaceChildren(button);
  }
}

/** @param {HTMLElement} cell @param {string} text @param {string} [title] */
function setCellText(cell, text, title = text) {
  cell.textContent = text;
  cell.title = title;
}

/** @param {HTMLElement} cell @param {any} row */
function showJob(cell, row) {
  const link = /** @type {HTMLAnchorElement} */ (cell.firstElementChild ?? cell.appendChild(h("a", { class: "mono", tabindex: "-1" })));
  link.href = href(`/jobs/${row.job_key}`);
  link.title = "Go to job";
  link.textContent = row.job_key;
}
