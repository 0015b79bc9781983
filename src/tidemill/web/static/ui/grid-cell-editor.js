// @ts-check
/** Edits one cell of a grid in place. */
import { h } from "../core/dom.js";

/**
 * @typedef {object} CellEdit
 * @property {(row: any) => string | null} text the text to edit; null if the cell of this row cannot be edited
 * @property {(row: any, text: string) => Promise<string | null>} save resolves with an error to show at the cell
 */
/** @typedef {{cell: HTMLElement, cancel: () => void}} CellEditor */

/**
 * Replaces the content of a cell by an input. Enter and leaving the input save the text, Escape cancels.
 * @param {HTMLElement} cell @param {string} label for screen readers @param {any} row @param {CellEdit} edit
 * @param {(hasFocus: boolean) => void} close restores the cell
 * @returns {CellEditor | null} null if the cell cannot be edited
 */
export function editCell(cell, label, row, edit, close) {
  const before = edit.text(row);
  if (before === null) return null;
  const { tabIndex } = cell;
  let isSaving = false;
  let isOpen = true;
  const input = /** @type {HTMLInputElement} */ (h("input", { class: "cell-input", type: "text", value: before, "aria-label": label, spellcheck: "false", autocomplete: "off" }));
  const end = () => {
    if (!isOpen) return;
    const hasFocus = document.activeElement === input;
    isOpen = false;
    cell.tabIndex = tabIndex;
    close(hasFocus);
  };
  const save = async () => {
    if (isSaving || !isOpen) return;
    if (input.value === before && input.validationMessage === "") return end();
    isSaving = true;
    input.readOnly = true;
    input.setCustomValidity("");
    input.setAttribute("aria-busy", "true");
    const problem = await edit.save(row, input.value).catch((/** @type {Error} */ error) => error.message);
    isSaving = false;
    input.readOnly = false;
    input.removeAttribute("aria-busy");
    if (problem === null || document.activeElement !== input) return end();
    input.setAttribute("aria-invalid", "true");
    input.setCustomValidity(problem);
    input.reportValidity(); // the browser shows the message at the cell
  };
  input.addEventListener("input", () => {
    input.setCustomValidity("");
    input.removeAttribute("aria-invalid");
  });
  input.addEventListener("blur", () => (input.validationMessage ? end() : save()));
  input.addEventListener("keydown", (event) => {
    event.stopPropagation(); // the grid and the page have keys, too
    if (event.key === "Escape") end();
    if (event.key === "Enter") void save();
    if (event.key === "Escape" || event.key === "Enter") event.preventDefault();
  });
  cell.tabIndex = -1; // only the input is a target
  cell.replaceChildren(input);
  input.focus({ preventScroll: true });
  input.select();
  return { cell, cancel: end };
}
