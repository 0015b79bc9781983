// @ts-check
/** A place to drop a file on, which is a button as well: who has no mouse can do the same. */
import { h, listen, uid } from "../core/dom.js";
import { signal } from "../core/signal.js";
import { icon } from "./icons.js";

/**
 * @param {{says: import("../core/dom.js").Child, hint?: import("../core/dom.js").Child, label: string, accept?: string, isSmall?: boolean, onFile: (file: File) => void}} how
 */
export function dropZone({ says, hint = null, label, accept = "", isSmall = false, onFile }) {
  const isOver = signal(false);
  const id = uid("file");
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "file", id, class: "unseen", accept: accept || null, "aria-label": label }));
  input.addEventListener("change", () => {
    const file = input.files?.[0];
    input.value = ""; // the same file, mended meanwhile, may be chosen again
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
  keepPage();
  return h(
    "label",
    { class: isSmall ? "drop small" : "drop", for: id, data: { over: () => isOver.value }, on: { dragover: over, dragenter: over, dragleave: () => (isOver.value = false), drop } },
    icon("up"),
    h("span", { class: "drop-says" }, says),
    hint === null ? null : h("span", { class: "hint" }, hint),
    h("span", { class: "button", "aria-hidden": "true" }, "Choose a file"),
    input,
  );
}

/** A file that is let go beside the zone would be opened instead of the page, and what was set there be gone. */
export function keepPage() {
  const keep = (/** @type {Event} */ event) => {
    const { dataTransfer } = /** @type {DragEvent} */ (event);
    if (event.defaultPrevented || !dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    dataTransfer.dropEffect = "none";
  };
  for (const name of ["dragover", "drop"]) listen(document, name, keep);
}
