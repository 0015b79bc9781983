// @ts-check
/** Columns of the item grid: metadata of each item, and its values as in exported files. */
import { formatDateTime, formatMilliseconds, formatNumber, formatTime, summaryText } from "../core/format.js";
import { cellText } from "../core/json.js";
import { OPEN_ITEM_STATUSES, statusBadge, updateStatusBadge } from "../ui/status.js";

/** @typedef {import("../ui/grid.js").Column} Column */

/** The columns before the values, so that they stay visible however many values there are. @param {string} of whether the values are inputs or results @returns {Column[]} */
export function leadingColumns(of) {
  /** Failed items have no result; their input identifies them. @type {Column} */
  const input = { label: "Input", width: "minmax(8rem, 1fr)", show: (cell, row) => setCellText(cell, summaryText(row.input_summary)) };
  return [
    { label: "Row", width: "5.5rem", align: "right", show: (cell, row) => setCellText(cell, formatNumber(row.seq + 1)) },
    {
      label: "Status",
      width: "8.5rem",
      show(cell, row) {
        const shown = /** @type {HTMLElement | null} */ (cell.firstElementChild);
        if (shown) updateStatusBadge(shown, row.status);
        else cell.replaceChildren(statusBadge(row.status));
      },
    },
    ...(of === "input" ? [] : [input]),
    { label: "Attempts", width: "5.5rem", align: "right", show: (cell, row) => setCellText(cell, String(row.attempts)) },
    { label: "Duration", width: "5.5rem", align: "right", show: (cell, row) => setCellText(cell, row.duration_ms === null || row.duration_ms === undefined ? "" : formatMilliseconds(row.duration_ms)) },
    { label: "Updated", width: "7rem", show: (cell, row) => setCellText(cell, row.updated_at ? formatTime(row.updated_at) : "", formatDateTime(row.updated_at)) },
  ];
}

/** @param {string} name @param {import("../core/signal.js").Signal<string>} of @returns {Column} */
export function valueColumn(name, of) {
  return { label: name, width: "minmax(8rem, 1fr)", show: (cell, row) => setCellText(cell, valueOf(row, name, of.peek())) };
}

/** The text of a value, as in an exported file. @param {any} row @param {string} name @param {string} of */
function valueOf(row, name, of) {
  if (of !== "input" && OPEN_ITEM_STATUSES.includes(row.status)) return "";
  if (row.result_cut) return "Too long for the list: open the row";
  const value = of === "input" ? (row.input ?? row.input_summary) : row.result;
  if (value === null || value === undefined) return "";
  if (typeof value === "object" && !Array.isArray(value)) return cellText(value[name]);
  return name === of ? cellText(value) : "";
}

/** Columns with the error of an item. @returns {Column[]} */
export function errorColumns() {
  return [
    { label: "Error code", width: "8rem", show: (cell, row) => setCellText(cell, row.error?.code ?? "") },
    { label: "Reason", width: "minmax(12rem, 2fr)", show: (cell, row) => setCellText(cell, row.error?.reason ?? "") },
  ];
}

/** @param {HTMLElement} cell @param {string} text @param {string} [title] */
function setCellText(cell, text, title = text) {
  cell.textContent = text.length > 300 ? `${text.slice(0, 299)}…` : text;
  if (title) cell.title = title.slice(0, 1000);
  else cell.removeAttribute("title");
}
