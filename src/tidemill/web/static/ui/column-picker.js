// @ts-check
/** A list of columns to choose from, with buttons that change their order. */
import { h } from "../core/dom.js";
import { signal } from "../core/signal.js";

/**
 * @param {string[]} all the columns in their own order
 * @param {string[]} initial the chosen columns in order; empty: all
 * @param {(chosen: string[]) => void} changed gets the chosen columns in order; empty if all are chosen in their own order
 */
export function columnPicker(all, initial, changed) {
  const first = initial.filter((name) => all.includes(name));
  const order = [...first, ...all.filter((name) => !first.includes(name))];
  const count = signal(first.length || all.length);
  const list = h("ol", { class: "column-list" });
  const boxes = () => /** @type {HTMLInputElement[]} */ ([...list.querySelectorAll("input")]);
  const publish = () => {
    const chosen = boxes().filter((box) => box.checked);
    count.value = chosen.length;
    for (const box of boxes()) box.disabled = box.checked && chosen.length === 1;
    const names = chosen.map((box) => box.value);
    changed(names.length === all.length && names.every((name, at) => name === all[at]) ? [] : names);
  };
  /** @param {MouseEvent} event @param {"previousElementSibling" | "nextElementSibling"} side */
  const move = (event, side) => {
    const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
    const row = /** @type {HTMLElement} */ (button.closest("li"));
    const other = row[side];
    if (!other) return;
    if (side === "previousElementSibling") other.before(row);
    else other.after(row);
    button.focus(); // a moved element loses the focus
    publish();
  };
  for (const name of order) {
    list.append(
      h(
        "li",
        null,
        h("label", { class: "choice" }, h("input", { type: "checkbox", value: name, checked: first.length === 0 || first.includes(name), disabled: first.length === 1 && first[0] === name, on: { change: publish } }), name),
        h("button", { type: "button", class: "small", "aria-label": `Move ${name} up`, on: { click: (/** @type {MouseEvent} */ event) => move(event, "previousElementSibling") } }, "↑"),
        h("button", { type: "button", class: "small", "aria-label": `Move ${name} down`, on: { click: (/** @type {MouseEvent} */ event) => move(event, "nextElementSibling") } }, "↓"),
      ),
    );
  }
  return h("fieldset", { class: "stack tight" }, h("legend", { class: "hint" }, () => `Columns: ${count.value} of ${all.length}`), list);
}
