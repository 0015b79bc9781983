// @ts-check
/** An area to drop a file on, which is also a button for keyboard users. */
import { h, listen, uniqueId } from "../core/dom.js";
import { signal } from "../core/signal.js";
import { icon } from "./icons.js";

/**
 * @param {{text: import("../core/dom.js").Child, hint?: import("../core/dom.js").Child, label: string, accept?: string, isSmall?: boolean, onFile: (file: File) => void}} options
 */
export function dropZone({ text, hint = null, label, accept = "", isSmall = false, onFile }) {
  const isOver = signal(false);
  const id = uniqueId("file");
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "file", id, class: "unseen", accept: accept || null, "aria-label": label }));
  input.addEventListener("change", () => {
    const file = input.files?.[0];
    input.value = ""; // lets the user choose the same file again after fixing it
    if (file) onFile(file);
  });
  /** @param {DragEvent} event */
  const drop = (event) => {
    event.preventDefault();
    isOver.value = false;
    const file = event.dataTransfer?.files[0];
    if (file) onFile(file);
  };
  const over = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    isOver.value = true;
  };
  preventPageDrop();
  return h(
    "label",
    { class: isSmall ? "drop small" : "drop", for: id, data: { over: () => isOver.value }, on: { dragover: over, dragenter: over, dragleave: () => (isOver.value = false), drop } },
    icon("up"),
    h("span", { class: "drop-says" }, text),
    hint === null ? null : h("span", { class: "hint" }, hint),
    h("span", { class: "button", "aria-hidden": "true" }, "Choose a file"),
    input,
  );
}

/** A file dropped outside of the zone would replace the page, and discard its state. */
export function preventPageDrop() {
  const keep = (/** @type {Event} */ event) => {
    const { dataTransfer } = /** @type {DragEvent} */ (event);
    if (event.defaultPrevented || !dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    dataTransfer.dropEffect = "none";
  };
  for (const name of ["dragover", "drop"]) listen(document, name, keep);
}
