// @ts-check
/** The rows of an import that have errors: counts by reason, a grid, and how to fix them. */
import { api } from "../core/api.js";
import { h, keyedList, uniqueId } from "../core/dom.js";
import { formatNumber, humanize, pluralize } from "../core/format.js";
import { cellText } from "../core/json.js";
import { href, queryParam, setQuery } from "../core/router.js";
import { computed, effect, effectScope, onCleanup, signal, untracked } from "../core/signal.js";
import { stableOrder } from "../core/stable-order.js";
import { createGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { CursorRowSource } from "../ui/row-source.js";
import { singleFlight } from "../ui/single-flight.js";
import { isClosed } from "../ui/status.js";
import { downloadFile, fixRow, uploadFixes, waitForRow } from "./import-actions.js";
import { repairRows } from "./import-repair.js";
import { itemErrors, openRowEditor, parseJsonValue, rowState } from "./import-row-editor.js";
import { reprocessItems } from "./job-actions.js";

/** The words of error codes. Other codes are shown as they are. */
const REASONS = new Map([
  ["type", "wrong type"],
  ["required", "missing"],
  ["enum", "not an allowed value"],
  ["pattern", "wrong format"],
  ["exists", "already exists"],
  ["shape", "not an object"],
  ["check", "violates a check"],
  ["exclusion", "conflicts with another row"],
  ["refused", "rejected by the database"],
]);

/** @param {import("../core/signal.js").Signal<any>} job the import @param {() => Promise<void>} again reloads it */
export function importErrors(job, again) {
  const code = queryParam("code");
  const inOrder = stableOrder((/** @type {any} */ one) => one[0]);
  const codes = computed(() => inOrder(Object.entries(countNotDropped(job.value)).filter(([, count]) => count > 0).toSorted((/** @type {any} */ a, /** @type {any} */ b) => b[1] - a[1])));
  const hasSeveralErrors = () => codes.value.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one[1], 0) > job.value.counts.failed;
  return h(
    "section",
    // Not while the job is open: a row that is retried has no error for a moment.
    { class: "stack findings", "aria-label": "Errors", hidden: () => job.value.counts.failed === 0 && isClosed(job.value.status) },
    h("div", { class: "row between" }, h("h2", null, () => `${pluralize(job.value.counts.failed, "row")} with errors`), downloads(job)),
    errorGroups(() => codes.value, code, () => job.value.counts.failed, (cause) => repairRows(job.peek(), cause, describeCode(cause).filter(Boolean).join(": "), again)),
    () => droppedHint(job.value),
    h("p", { class: "hint", hidden: () => !hasSeveralErrors() }, "Rows can have several errors. Each number counts the rows with this error."),
    () => {
      const chosen = code.value;
      return untracked(() => rowsGrid(job, chosen));
    },
  );
}

/** The rows by error code, without those that a user dropped. @param {any} job @returns {Record<string, number>} */
function countNotDropped(job) {
  return Object.fromEntries(Object.entries(job.rows_by_error).map(([code, count]) => [code, Number(count) - (job.dismissed_by_error[code] ?? 0)]));
}

/** @param {any} job */
function droppedHint(job) {
  const most = Math.max(0, ...Object.values(job.dismissed_by_error).map(Number));
  return most ? h("p", { class: "hint" }, `${pluralize(most, "dismissed row")} not counted by reason. `, h("a", { href: href("/dead-letters", { show: "dismissed" }) }, "Show dismissed rows")) : null;
}

/** The field and the words of an error code such as `born.type`. @param {string} code @returns {[field: string, reason: string]} */
function describeCode(code) {
  const dot = code.lastIndexOf(".");
  const rule = code.slice(dot + 1);
  return [code.slice(0, Math.max(dot, 0)), REASONS.get(rule) ?? humanize(rule)];
}

/** @param {() => any[]} codes @param {import("../core/signal.js").Signal<string>} chosen @param {() => number} total @param {(code: string) => Promise<void>} repair */
function errorGroups(codes, chosen, total, repair) {
  /** @param {import("../core/signal.js").Signal<[string, number]>} entry */
  const one = (entry) => {
    const [code] = entry.peek();
    const [field, reason] = describeCode(code);
    const toggle = () => setQuery({ code: chosen.peek() === code ? null : code, row: null });
    const describedBy = uniqueId("reason");
    const part = () => String((entry.value[1] / Math.max(1, total())) * 100);
    return h("li", null, h("button", { type: "button", class: "group", id: describedBy, title: code, "aria-pressed": () => String(chosen.value === code), on: { click: toggle } }, h("span", { class: "group-name" }, field ? [h("strong", null, field), ": "] : null, reason), h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { style: { "--part": part } })), h("span", { class: "number" }, () => pluralize(entry.value[1], "row"))), h("button", { type: "button", "aria-describedby": describedBy, on: { click: singleFlight(() => repair(code)) } }, () => `Fix ${pluralize(entry.value[1], "row")} …`));
  };
  return keyedList(h("ul", { class: "groups", "aria-label": "By reason" }), codes, ([code]) => code, one);
}

/** @param {import("../core/signal.js").Signal<any>} job */
function downloads(job) {
  const id = () => job.peek().job_id;
  return h(
    "div",
    { class: "row" },
    menuButton(
      "Download errors",
      () => downloadActions(job.peek()),
      { content: [icon("down"), "Download errors"], class: "" },
    ),
    h("button", { type: "button", on: { click: () => uploadFixes(job.peek(), () => null) } }, icon("up"), "Upload fixed file"),
    h("button", { type: "button", hidden: () => job.value.validate_only, on: { click: singleFlight(() => reprocessItems({ id: id(), key: job.peek().key, user_id: job.peek().user_id }, { statuses: ["failed"] })) } }, icon("retry"), "Retry failed rows …"),
  );
}

/** One file per format. The format of the uploaded file is first. @param {any} job */
function downloadActions(job) {
  const uploaded = { csv: "csv", tsv: "csv", xlsx: "xlsx" }[/** @type {string} */ (job.layout.format)] ?? "ndjson";
  const formats = [["csv", "CSV file"], ["xlsx", "Excel workbook"], ["ndjson", "NDJSON file"]].toSorted(([a], [b]) => Number(b === uploaded) - Number(a === uploaded));
  return formats.map(([format, name]) => ({ label: format === uploaded ? `${name} (like the uploaded file)` : name, icon: "down", run: () => downloadFile(`/v1/imports/${job.job_id}/errors.${format}`) }));
}

/** @param {import("../core/signal.js").Signal<any>} job @param {string} code */
function rowsGrid(job, code) {
  const { job_id } = job.peek();
  const source = new CursorRowSource(async (after, size, signal) => {
    // In a list, because the code of an error of several fields contains a comma.
    const page = await api.get(`/v1/imports/${job_id}/errors`, { error_codes: code ? [code] : null, include_dismissed: code ? false : null, page_size: size, after }, signal);
    return { rows: page.rows, next: page.next_page ?? null };
  });
  const columns = job.peek().columns;
  const errorCount = computed(() => (code ? countNotDropped(job.value)[code] ?? 0 : job.value.counts.failed));
  const shownCount = signal(errorCount.peek());
  const fixedCount = signal(0);
  const row = queryParam("row");
  const open = signal(/** @type {number | null} */ (null));
  /** In a scope of its own, as it stays open while the user moves from row to row. @type {[import("../ui/drawer.js").Drawer, () => void] | null} */
  let drawer = null;
  const closeDrawer = () => {
    const [opened, end] = drawer ?? [null, null];
    drawer = null;
    opened?.close();
    end?.();
  };

  const refresh = () => {
    shownCount.value = errorCount.peek();
    fixedCount.value = 0;
    source.refresh();
  };
  const footer = h(
    "div",
    { class: "grid-foot", role: "status" },
    () => `${pluralize(errorCount.value, "row")} ${code ? `with the error "${describeCode(code).filter(Boolean).join(": ")}"` : "with errors"}${fixedCount.value ? `, ${formatNumber(fixedCount.value)} fixed here` : ""}`,
    h("span", { class: "spring" }),
    h("button", { type: "button", class: "small", hidden: () => errorCount.value + fixedCount.value === shownCount.value && !fixedCount.value, on: { click: refresh } }, icon("refresh"), "The list has changed – show changes"),
  );
  const grid = createGrid({
    label: "Rows with errors",
    source,
    keyOf: (one) => one.row,
    nameOf: (one) => `row ${formatNumber(one.row)}`,
    columns: [
      { label: "Row", width: "6rem", align: "right", show: (cell, one) => (cell.textContent = formatNumber(one.row)) },
      { label: "Errors", width: "minmax(16rem, 2fr)", show: showErrors },
      ...columns.map((/** @type {string} */ name) => ({ label: name, width: "minmax(9rem, 1fr)", show: (/** @type {HTMLElement} */ cell, /** @type {any} */ one) => showCell(cell, one, name, job.peek().mapping), edit: { text: (/** @type {any} */ one) => editableText(one, name), save: (/** @type {any} */ one, /** @type {string} */ text) => saveCell(one, name, text) } })),
    ],
    onOpen: (one) => setQuery({ row: one.row }),
    footer,
  });

  // Refresh automatically only if the user is not about to click something.
  effect(() => {
    const isOver = isClosed(job.value.status);
    if (errorCount.value + fixedCount.value === shownCount.value) return;
    void source.version.value;
    const isFirstPageLoading = source.isFetching && source.pages.length === 0; // refreshing now would abort the first page, again and again
    if ((source.loaded === 0 && !isFirstPageLoading) || (isOver && !grid.element.matches(":hover, :focus-within") && open.peek() === null)) untracked(refresh);
  });
  effect(() => {
    const requestedRow = Number(row.value) || null;
    open.value = requestedRow;
    if (requestedRow === null) untracked(closeDrawer);
    else drawer ??= effectScope(() => openRowEditor(job.peek(), open, { columns, isAt: (one) => open.peek() === one, next: nextFailedRow, onFixed, onNavigate: (to) => setQuery({ row: to }, { replace: to !== null }) }));
  });
  onCleanup(closeDrawer);

  const stop = new AbortController();
  onCleanup(() => stop.abort());

  /** Fixes one value, retries the row, and resolves with the errors of the value. @param {any} one @param {string} name @param {string} text */
  async function saveCell(one, name, text) {
    const before = one.input[name];
    const isText = before === null || before === undefined || typeof before === "string";
    await fixRow(job.peek(), one.row, { [name]: isText ? text : parseJsonValue(text, name) });
    const item = await waitForRow(job.peek(), one.row, stop.signal);
    onFixed(one.row, item);
    const target = job.peek().mapping[name] ?? name;
    const wrong = itemErrors(item).filter((error) => error.field === target || error.field === name);
    return item.status === "failed" && wrong.length ? wrong.map((error) => error.reason).join("; ") : null;
  }

  /** The next row in the list that still has errors. @param {number} after */
  function nextFailedRow(after) {
    for (let index = 0; index < source.loaded; index += 1) {
      const one = source.rowAt(index);
      if (one && one.row > after && !one.isFixed) return one.row;
    }
    return null;
  }

  /** Updates a row in place; the list does not move. @param {number} number @param {any} item */
  function onFixed(number, item) {
    const isValid = item.status !== "failed";
    if (isValid) fixedCount.update((n) => n + 1);
    source.updateRow((one) => one.row === number, { input: item.input, errors: itemErrors(item), isFixed: isValid, state: rowState(job.peek(), item.status) });
  }
  return grid.element;
}

/** The text of a value to edit; null for a fixed row, and for a record that could not be parsed. @param {any} one @param {string} name */
function editableText(one, name) {
  return one.isFixed || one.input === null || typeof one.input !== "object" || Array.isArray(one.input) ? null : cellText(one.input[name]);
}

/** @param {HTMLElement} cell @param {any} one */
function showErrors(cell, one) {
  cell.replaceChildren(one.isFixed ? h("span", { class: "status", data: { tone: "ok" } }, icon("check"), one.state) : errorText(one));
  cell.title = one.isFixed ? "" : errorText(one);
}

/** @param {any} one */
function errorText(one) {
  return one.errors.map((/** @type {any} */ error) => `${error.field ? `${error.field}: ` : ""}${error.reason}`).join("; ");
}

/** @param {HTMLElement} cell @param {any} one @param {string} column @param {Record<string, string>} mapping */
function showCell(cell, one, column, mapping) {
  const isObject = one.input !== null && typeof one.input === "object";
  cell.textContent = isObject ? cellText(one.input[column]) : cellText(one.input);
  cell.title = cell.textContent;
  const isWrong = !one.isFixed && (!isObject || one.errors.some((/** @type {any} */ error) => error.field === (mapping[column] ?? column) || error.field === column));
  cell.classList.toggle("wrong", isWrong);
}
