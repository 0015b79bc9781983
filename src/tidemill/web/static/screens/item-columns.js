// @ts-check
/** The columns of a grid of items: what is known of each, and its values as exported files have them. */
import { count, milliseconds, moment, titleOf, wholeMoment } from "../core/format.js";
import { cellText } from "../core/json.js";
import { OPEN_ITEMS, setStatus, status } from "../ui/status.js";

/** @typedef {import("../ui/grid.js").Column} Column */

/** What is known of every row, before its values: in sight however many of these there are. @param {string} of what the values are of @returns {Column[]} */
export function front(of) {
  /** What failed has no values of its own: its input tells it from others. @type {Column} */
  const input = { label: "Input", width: "minmax(8rem, 1fr)", show: (cell, row) => text(cell, titleOf(row.input_summary)) };
  return [
    { label: "Row", width: "5.5rem", align: "right", show: (cell, row) => text(cell, count(row.seq + 1)) },
    {
      label: "Status",
      width: "8.5rem",
      show(cell, row) {
        const shown = /** @type {HTMLElement | null} */ (cell.firstElementChild);
        if (shown) setStatus(shown, row.status);
        else cell.replaceChildren(status(row.status));
      },
    },
    ...(of === "input" ? [] : [input]),
    { label: "Attempts", width: "5.5rem", align: "right", show: (cell, row) => text(cell, String(row.attempts)) },
    { label: "Took", width: "5.5rem", align: "right", show: (cell, row) => text(cell, row.duration_ms === null || row.duration_ms === undefined ? "" : milliseconds(row.duration_ms)) },
    { label: "Changed", width: "7rem", show: (cell, row) => text(cell, row.updated_at ? moment(row.updated_at) : "", wholeMoment(row.updated_at)) },
  ];
}

/** @param {string} name @param {import("../core/signal.js").Signal<string>} of @returns {Column} */
export function valueColumn(name, of) {
  return { label: name, width: "minmax(8rem, 1fr)", show: (cell, row) => text(cell, valueOf(row, name, of.peek())) };
}

/** What stands in the cell of a column, as in an exported file. @param {any} row @param {string} name @param {string} of */
export function valueOf(row, name, of) {
  if (of !== "input" && OPEN_ITEMS.includes(row.status)) return "";
  if (row.result_cut) return "too long for a list: open the row";
  const value = of === "input" ? (row.input ?? row.input_summary) : row.result;
  if (value === null || value === undefined) return "";
  if (typeof value === "object" && !Array.isArray(value)) return cellText(value[name]);
  return name === of ? cellText(value) : "";
}

/** Why a row is not done. @returns {Column[]} */
export function why() {
  return [
    { label: "Cause", width: "8rem", show: (cell, row) => text(cell, row.error?.code ?? "") },
    { label: "Reason", width: "minmax(12rem, 2fr)", show: (cell, row) => text(cell, row.error?.reason ?? "") },
  ];
}

/** @param {HTMLElement} cell @param {string} says @param {string} [title] */
export function text(cell, says, title = says) {
  cell.textContent = says.length > 300 ? `${says.slice(0, 299)}…` : says;
  if (title) cell.title = title.slice(0, 1000);
  else cell.removeAttribute("title");
}
