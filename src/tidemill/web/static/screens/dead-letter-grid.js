// @ts-check
/** The failed items of one group in a grid, and the actions on the selected rows. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatDateTime, formatNumber, formatTime, humanize, pluralize, summaryText } from "../core/format.js";
import { ownerScope } from "../core/live-updates.js";
import { href } from "../core/router.js";
import { effect, signal, untracked } from "../core/signal.js";
import { userName } from "../core/user-names.js";
import { createGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { emptyState } from "../ui/notices.js";
import { CursorRowSource } from "../ui/row-source.js";
import { Selection } from "../ui/selection.js";
import { singleFlight } from "../ui/single-flight.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { openItemDrawer } from "./item-drawer.js";
import { redriveAll, redriveOne, setDismissed } from "./redrive.js";
import { MAX_IDS, tooManyMessage } from "./selection-actions.js";

/**
 * @param {{category: "handler" | "invalid_row" | "dry_run" | "dismissed", title: string, filter: import("./redrive.js").DeadFilter, matching: () => import("./redrive.js").Counted, job?: string, done: () => void}} options
 */
export function deadLetterGrid(options) {
  const { category, title, filter, matching } = options;
  const isDismissed = category === "dismissed";
  const source = new CursorRowSource(async (after, size, signal) => {
    const page = await api.get("/v1/dead-letters", { ...filter, dismissed: isDismissed || undefined, user_id: ownerScope.peek(), after, page_size: size }, signal);
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
  const many = () => `${matching().isExact ? "" : "≥ "}${formatNumber(matching().n)}`;

  /** Runs an action on the selected rows. @param {(filter: import("./redrive.js").DeadFilter, options: import("./redrive.js").SelectionOptions & {matching: import("./redrive.js").Counted}) => any} run */
  async function onSelected(run) {
    const parts = selection.toKeysAndRanges(MAX_IDS);
    if (parts === null) return void showToast(tooManyMessage(selection), "bad");
    const keys = /** @type {string[]} */ (parts.keys);
    const more = { job: options.job, title, done, matching: untracked(matching) };
    return run(filter, selection.isAll ? { ...more, except: keys } : { ...more, ids: keys });
  }

  const selectedButton = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {Parameters<typeof onSelected>[0]} */ run, isMain = false) => h("button", { type: "button", class: isMain ? "small main-act" : "small", on: { click: singleFlight(() => toastOnError(() => onSelected(run))) } }, icon(picture), label);
  const canRetry = category === "handler" || category === "invalid_row";
  const actions = isDismissed
    ? [selectedButton("Restore selected", "retry", (...given) => setDismissed("restore", ...given), true)]
    : [canRetry ? selectedButton("Retry selected …", "retry", redriveAll, true) : null, selectedButton("Dismiss selected", "cross", (...given) => setDismissed("dismiss", ...given))];

  const footer = h(
    "div",
    { class: () => (isEmpty() ? "grid-foot" : "grid-foot is-chosen") },
    h("span", { role: "status" }, () => {
      if (isEmpty()) return `${many()} with this error · ${(source.version.value, formatNumber(source.loaded))} loaded`;
      return selection.isAll ? `All ${many()} matching rows${selection.keys.size ? ` except ${formatNumber(selection.keys.size)}` : ""}` : `${pluralize(selection.size(0), "row")} selected`;
    }),
    h("button", { type: "button", class: "link", hidden: () => !isEmpty() || seen.value === null || matching().n === seen.value, on: { click: show } }, "The list has changed – show changes"),
    h("button", { type: "button", class: "link", hidden: () => isEmpty() || selection.isAll, on: { click: () => selection.selectAll() } }, () => `Select all ${many()} matching`),
    h("span", { class: "spring" }),
    h("span", { class: "row", hidden: isEmpty }, actions, h("button", { type: "button", class: "small", on: { click: () => selection.clear() } }, "Clear")),
  );
  const grid = createGrid({
    label: `Failed items with error ${title}`,
    source,
    selection,
    columns: [
      { label: "Job", width: "9.5rem", show: showJob },
      { label: "Row", width: "5.5rem", align: "right", show: (cell, row) => setCellText(cell, formatNumber(row.seq + 1), row.id) },
      { label: "Input", width: "minmax(7rem, 1fr)", show: (cell, row) => setCellText(cell, summaryText(row.input_summary)) },
      { label: "Reason", width: "minmax(11rem, 2fr)", show: (cell, row) => setCellText(cell, row.sent === undefined || row.sent === "failed" ? (row.error?.reason ?? "") : `Retried${row.sent ? `: ${humanize(row.sent)}` : ""}`) },
      { label: "Attempts", width: "5.5rem", align: "right", show: (cell, row) => setCellText(cell, String(row.attempts)) },
      { label: "Failed at", width: "6.5rem", show: (cell, row) => setCellText(cell, formatTime(row.updated_at), formatDateTime(row.updated_at)) },
      { label: "Kind", width: "7rem", show: (cell, row) => setCellText(cell, row.kind) },
      ...(isDismissed ? [{ label: "Dismissed", width: "12rem", show: showDismissed }] : []),
      { label: "Action", width: "6.5rem", show: showAction },
    ],
    keyOf: (row) => row.id,
    nameOf: (row) => `row ${formatNumber(row.seq + 1)} of ${row.job_key}`,
    onOpen: openRow,
    footer,
    emptyContent: () => emptyState({ title: "None left", text: isDismissed ? "All rows with this error were restored or retried." : "All rows with this error were retried or dismissed." }),
  });
  return grid.element;

  /** @param {any} row */
  function openRow(row) {
    openItemDrawer(signal({ id: row.job_id, key: row.job_key, user_id: row.user_id }), row.seq, { changed: (item) => sent(row, item), focusBack: () => grid.focus() });
  }

  /** @param {HTMLElement} cell @param {any} row */
  function showAction(cell, row) {
    const name = `row ${formatNumber(row.seq + 1)} of ${row.job_key}`;
    if (category === "dry_run") {
      cell.replaceChildren(h("a", { class: "button small plain", tabindex: "-1", href: href(`/imports/${row.job_key}`), "aria-label": `Promote dry run ${row.job_key}` }, "Promote …"));
      return;
    }
    const [label, run] = category === "invalid_row" ? ["Fix and retry", () => openRow(row)] : isDismissed ? ["Restore", () => setDismissed("restore", filter, { ids: [row.id], done })] : ["Retry …", () => redriveOne(filter, { row, job: options.job, title, done, onResult: sent })];
    cell.replaceChildren(h("button", { type: "button", class: "small plain", tabindex: "-1", "aria-label": `${label.replace(" …", "")} ${name}`, on: { click: singleFlight(() => toastOnError(async () => void (await run()))) } }, label));
  }
}

/** @param {HTMLElement} cell @param {any} row */
function showDismissed(cell, row) {
  setCellText(cell, `${formatTime(row.dismissed_at)} by ${userName(row.dismissed_by)}`, formatDateTime(row.dismissed_at));
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
