// @ts-check
/** What is wrong with the rows of an import: how often, in which rows, and how to mend them. */
import { api } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { count, counted } from "../core/format.js";
import { cellText } from "../core/json.js";
import { setQuery, word } from "../core/router.js";
import { computed, effect, onCleanup, scope, signal, untracked } from "../core/signal.js";
import { steady } from "../core/steady.js";
import { makeGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { press } from "../ui/press.js";
import { CursorSource } from "../ui/source.js";
import { isClosed } from "../ui/status.js";
import { reprocess } from "./job-acts.js";
import { save, uploadFixes, workbook } from "./import-acts.js";
import { faultsOf, openRow } from "./import-row.js";

/** @param {import("../core/signal.js").Signal<any>} job the import, which is followed */
export function findings(job) {
  const code = word("code");
  const inOrder = steady((/** @type {any} */ one) => one[0]);
  const codes = computed(() => inOrder(Object.entries(job.value.errors).sort((/** @type {any} */ a, /** @type {any} */ b) => b[1] - a[1])));
  return h(
    "section",
    { class: "stack findings", "aria-label": "Findings" },
    h("div", { class: "row between" }, h("h2", null, () => `${counted(job.value.counts.failed, "row")} with errors`), downloads(job)),
    groups(() => codes.value, code, () => job.value.counts.failed),
    () => {
      const chosen = code.value;
      return untracked(() => rowsGrid(job, chosen));
    },
  );
}

/** @param {() => any[]} codes @param {import("../core/signal.js").Signal<string>} chosen @param {() => number} total */
function groups(codes, chosen, total) {
  /** @param {import("../core/signal.js").Signal<[string, number]>} entry */
  const one = (entry) => {
    const [code] = entry.peek();
    const dot = code.lastIndexOf(".");
    const [field, rule] = dot < 0 ? ["", code] : [code.slice(0, dot), code.slice(dot + 1)];
    const toggle = () => setQuery({ code: chosen.peek() === code ? null : code, row: null });
    const part = () => String((entry.value[1] / Math.max(1, total())) * 100);
    return h("li", null, h("button", { type: "button", class: "group", "aria-pressed": () => String(chosen.value === code), on: { click: toggle } }, h("span", { class: "group-name" }, field ? [h("strong", null, field), " "] : null, rule.replaceAll("_", " ")), h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { style: { "--part": part } })), h("span", { class: "number" }, () => count(entry.value[1]))));
  };
  return each(h("ul", { class: "groups", "aria-label": "By reason" }), codes, ([code]) => code, one);
}

/** @param {import("../core/signal.js").Signal<any>} job */
function downloads(job) {
  const id = () => job.peek().job_id;
  return h(
    "div",
    { class: "row" },
    menuButton(
      "Download failed rows",
      () => [
        { label: "Failed rows as CSV", icon: "down", run: () => save(`/v1/imports/${id()}/errors.csv`) },
        { label: "Failed rows as NDJSON", icon: "down", run: () => save(`/v1/imports/${id()}/errors.ndjson`) },
        { label: "Failed rows as a workbook", icon: "down", run: () => workbook(job.peek(), ["failed"]) },
      ],
      { content: [icon("down"), "Download failed rows"], class: "" },
    ),
    h("button", { type: "button", on: { click: () => uploadFixes(job.peek(), () => null) } }, icon("up"), "Upload mended file"),
    h("button", { type: "button", hidden: () => job.value.validate_only, on: { click: press(() => reprocess({ id: id(), key: job.peek().key }, { statuses: ["failed"] })) } }, icon("retry"), "Reprocess failed …"),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job @param {string} code */
function rowsGrid(job, code) {
  const { job_id } = job.peek();
  const source = new CursorSource(async (after, size, signal) => {
    const page = await api.get(`/v1/imports/${job_id}/errors`, { error_codes: code, page_size: size, after }, signal);
    return { rows: page.rows, next: page.next_page ?? null };
  });
  const columns = job.peek().columns;
  const wanted = computed(() => (code ? job.value.errors[code] ?? 0 : job.value.counts.failed));
  const shown = signal(wanted.peek());
  const mended = signal(0);
  const row = word("row");
  const open = signal(/** @type {number | null} */ (null));
  /** Of a scope of its own: it lasts while rows are looked at, one after the other. @type {[import("../ui/drawer.js").Drawer, () => void] | null} */
  let drawer = null;
  const closeDrawer = () => {
    const [shown, end] = drawer ?? [null, null];
    drawer = null;
    shown?.close();
    end?.();
  };

  const refresh = () => {
    shown.value = wanted.peek();
    mended.value = 0;
    source.refresh();
  };
  const foot = h(
    "div",
    { class: "grid-foot", role: "status" },
    () => `${code ? `${code}: ` : ""}${counted(wanted.value, "row")} with errors${mended.value ? `, ${count(mended.value)} mended here` : ""}`,
    h("span", { class: "spring" }),
    h("button", { type: "button", class: "small", hidden: () => wanted.value + mended.value === shown.value && !mended.value, on: { click: refresh } }, icon("retry"), "The list has changed – show"),
  );
  const grid = makeGrid({
    label: "Rows with errors",
    source,
    keyOf: (one) => one.row,
    nameOf: (one) => `row ${count(one.row)}`,
    columns: [
      { label: "Row", width: "6rem", align: "right", show: (cell, one) => (cell.textContent = count(one.row)) },
      { label: "What is wrong", width: "minmax(16rem, 2fr)", show: showFaults },
      ...columns.map((/** @type {string} */ name) => ({ label: name, width: "minmax(9rem, 1fr)", show: (/** @type {HTMLElement} */ cell, /** @type {any} */ one) => showCell(cell, one, name, job.peek().mapping) })),
    ],
    onOpen: (one) => setQuery({ row: one.row }),
    foot,
  });

  // What has failed since is shown at once only where nobody is about to press something.
  effect(() => {
    const isOver = isClosed(job.value.status);
    if (wanted.value + mended.value === shown.value) return;
    source.version.value;
    const isBegun = source.isAsking && source.pages.length === 0; // the first page is on its way: news quicker than it would keep it from ever coming
    if ((source.loaded === 0 && !isBegun) || (isOver && !grid.element.matches(":hover, :focus-within") && open.peek() === null)) untracked(refresh);
  });
  effect(() => {
    const asked = Number(row.value) || null;
    open.value = asked;
    if (asked === null) untracked(closeDrawer);
    else drawer ??= scope(() => openRow(job.peek(), open, { columns, isAt: (one) => open.peek() === one, next: nextOf, onMended, onGo: (to) => setQuery({ row: to }, { replace: to !== null }) }));
  });
  onCleanup(closeDrawer);

  /** The next row of the list that still has errors. @param {number} after */
  function nextOf(after) {
    for (let index = 0; index < source.loaded; index += 1) {
      const one = source.rowAt(index);
      if (one && one.row > after && !one.isMended) return one.row;
    }
    return null;
  }

  /** Shown where it stands: the list does not move. @param {number} number @param {any} item */
  function onMended(number, item) {
    const isGood = item.status !== "failed";
    if (isGood) mended.update((n) => n + 1);
    source.patch((one) => one.row === number, { input: item.input, errors: faultsOf(item), isMended: isGood });
  }
  return grid.element;
}

/** @param {HTMLElement} cell @param {any} one */
function showFaults(cell, one) {
  cell.replaceChildren(one.isMended ? h("span", { class: "status", data: { tone: "ok" } }, icon("check"), "good now") : told(one));
  cell.title = one.isMended ? "" : told(one);
}

/** @param {any} one */
function told(one) {
  return one.errors.map((/** @type {any} */ fault) => `${fault.field ? `${fault.field}: ` : ""}${fault.reason}`).join("; ");
}

/** @param {HTMLElement} cell @param {any} one @param {string} column @param {Record<string, string>} mapping */
function showCell(cell, one, column, mapping) {
  const isObject = one.input !== null && typeof one.input === "object";
  cell.textContent = isObject ? cellText(one.input[column]) : cellText(one.input);
  cell.title = cell.textContent;
  const isWrong = !one.isMended && (!isObject || one.errors.some((/** @type {any} */ fault) => fault.field === (mapping[column] ?? column) || fault.field === column));
  cell.classList.toggle("wrong", isWrong);
}
