// @ts-check
/** The dead letters of one cause in a grid, with what can be done to those selected. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, counted, moment, titleOf, wholeMoment, words } from "../core/format.js";
import { href } from "../core/router.js";
import { effect, signal, untracked } from "../core/signal.js";
import { scope } from "../core/sse.js";
import { empty } from "../ui/empty.js";
import { makeGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { press } from "../ui/press.js";
import { Selection } from "../ui/selection.js";
import { CursorSource } from "../ui/source.js";
import { tellIfFails, toast } from "../ui/toast.js";
import { openItem } from "./item.js";
import { redriveAll, tryOne } from "./redrive.js";
import { IDS_MAX, tooMany } from "./selection-acts.js";

/**
 * @param {string} code
 * @param {import("./redrive.js").DeadFilter} filter
 * @param {() => import("./redrive.js").Counted} matching
 * @param {{job?: string, done: () => void}} how
 */
export function deadRows(code, filter, matching, how) {
  const source = new CursorSource(async (after, size, signal) => {
    const page = await api.get("/v1/dead-letters", { ...filter, user_id: scope.peek(), after, page_size: size }, signal);
    return { rows: page.items, next: page.next_page ?? null };
  });
  const selection = new Selection();
  const done = () => {
    selection.clear();
    seen.value = null;
    source.refresh();
    how.done();
  };
  /** One was sent round again, alone: shown where it stands, and nothing else moves. @param {any} row @param {any} item as the service says; null if it did not yet */
  const sent = (row, item) => {
    source.patch((one) => one.id === row.id, item === null ? { sent: "" } : { sent: item.status, attempts: item.attempts, error: item.error ?? row.error });
    how.done();
  };
  /** How many there were when the rows were asked for. */
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
  const many = () => `${matching().isExact ? "" : "≤ "}${count(matching().n)}`;

  async function redrive() {
    const parts = selection.parts(IDS_MAX);
    if (parts === null) return void toast(tooMany(selection), "bad");
    const keys = /** @type {string[]} */ (parts.keys);
    return redriveAll(filter, selection.isAll ? { except: keys, job: how.job, done } : { ids: keys, done });
  }

  const foot = h(
    "div",
    { class: () => (isEmpty() ? "grid-foot" : "grid-foot is-chosen") },
    h("span", { role: "status" }, () => {
      if (isEmpty()) return `${many()} with this cause · ${(source.version.value, count(source.loaded))} loaded`;
      return selection.isAll ? `All ${many()} that match${selection.keys.size ? `, but ${counted(selection.keys.size, "row")}` : ""}` : `${counted(selection.size(0), "row")} selected`;
    }),
    h("button", { type: "button", class: "link", hidden: () => !isEmpty() || seen.value === null || matching().n === seen.value, on: { click: show } }, "The list has changed – show"),
    h("button", { type: "button", class: "link", hidden: () => isEmpty() || selection.isAll, on: { click: () => selection.all() } }, () => `Select all ${many()} that match`),
    h("span", { class: "spring" }),
    h("span", { class: "row", hidden: isEmpty }, h("button", { type: "button", class: "small main-act", on: { click: press(() => tellIfFails(redrive)) } }, icon("retry"), "Redrive selected …"), h("button", { type: "button", class: "small", on: { click: () => selection.clear() } }, "Clear")),
  );
  const grid = makeGrid({
    label: `Dead letters with cause ${code}`,
    source,
    selection,
    columns: [
      { label: "Job", width: "9.5rem", show: showJob },
      { label: "Row", width: "5.5rem", align: "right", show: (cell, row) => text(cell, count(row.seq + 1), row.id) },
      { label: "Title / brand", width: "minmax(7rem, 1fr)", show: (cell, row) => text(cell, titleOf(row.input_summary)) },
      { label: "Reason", width: "minmax(11rem, 2fr)", show: (cell, row) => text(cell, row.sent === undefined || row.sent === "failed" ? (row.error?.reason ?? "") : `Sent round again${row.sent ? `: ${words(row.sent)}` : ""}`) },
      { label: "Attempts", width: "5.5rem", align: "right", show: (cell, row) => text(cell, String(row.attempts)) },
      { label: "Failed at", width: "6.5rem", show: (cell, row) => text(cell, moment(row.updated_at), wholeMoment(row.updated_at)) },
      { label: "Job type", width: "7rem", show: (cell, row) => text(cell, row.kind) },
      { label: "Action", width: "6rem", show: showTry },
    ],
    keyOf: (row) => row.id,
    nameOf: (row) => `row ${count(row.seq + 1)} of ${row.job_key}`,
    onOpen: (row) => openItem(signal({ id: row.job_id, key: row.job_key, user_id: row.user_id }), row.seq, { changed: (item) => sent(row, item), focusBack: () => grid.focus() }),
    foot,
    whenEmpty: () => empty({ title: "None any more", says: "Every row with this cause was sent round again." }),
  });
  return grid.element;

  /** @param {HTMLElement} cell @param {any} row */
  function showTry(cell, row) {
    const button = h("button", { type: "button", class: "small plain", tabindex: "-1", on: { click: press(() => tellIfFails(() => tryOne(filter, { row, job: how.job, done, tried: sent }))) } }, "Try it …");
    button.setAttribute("aria-label", `Try row ${count(row.seq + 1)} of ${row.job_key}`);
    cell.replaceChildren(button);
  }
}

/** @param {HTMLElement} cell @param {string} says @param {string} [title] */
function text(cell, says, title = says) {
  cell.textContent = says;
  cell.title = title;
}

/** @param {HTMLElement} cell @param {any} row */
function showJob(cell, row) {
  const link = /** @type {HTMLAnchorElement} */ (cell.firstElementChild ?? cell.appendChild(h("a", { class: "mono", tabindex: "-1" })));
  link.href = href(`/jobs/${row.job_key}`);
  link.title = "Go to job";
  link.textContent = row.job_key;
}
