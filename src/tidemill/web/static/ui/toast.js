// @ts-check
/** Toasts: short messages in a corner, announced politely. Errors and messages with links stay until the user closes or follows them. */
import { appendChildren, h } from "../core/dom.js";
import { icon } from "./icons.js";

const VISIBLE_MS = 6_000;
/** @type {HTMLElement | null} */
let container = null;

/** Created once with the layout, because screen readers only announce changes of an existing live region. */
export function toastContainer() {
  container ??= h("div", { class: "toasts", role: "status", "aria-live": "polite", popover: null });
  return container;
}

/** @param {import("../core/dom.js").Child} content @param {"plain" | "ok" | "bad"} [tone] @param {{isPersistent?: boolean}} [options] `isPersistent` toasts stay until the caller removes them */
export function showToast(content, tone = "plain", { isPersistent = false } = {}) {
  const follow = (/** @type {Event} */ event) => /** @type {HTMLElement} */ (event.target).closest("a:not([download])") && made.remove();
  const made = h("div", { class: "toast", data: { tone }, on: { click: follow } });
  appendChildren(made, [
    h("div", null, content),
    h("button", { type: "button", class: "plain icon-only small", "aria-label": "Close this message", on: { click: () => made.remove() } }, icon("close")),
  ]);
  toastContainer().append(made);
  if (!isPersistent && tone !== "bad" && made.querySelector("a") === null) window.setTimeout(() => made.remove(), VISIBLE_MS);
  return made;
}

/** Runs an action of the user, and shows an error as a toast. @template T @param {() => Promise<T>} run @returns {Promise<T | undefined>} */
export async function toastOnError(run) {
  try {
    return await run();
  } catch (error) {
    showToast(/** @type {Error} */ (error).message, "bad");
    return undefined;
  }
}
