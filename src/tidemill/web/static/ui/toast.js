// @ts-check
/** Short news in a corner, read out politely. What went wrong, and what leads somewhere, stays until it is closed or followed. */
import { append, h } from "../core/dom.js";
import { icon } from "./icons.js";

const STAYS_MS = 6_000;
/** @type {HTMLElement | null} */
let holder = null;

/** Once, with the frame: a place that is there before anything is said is read out. */
export function toastHolder() {
  holder ??= h("div", { class: "toasts", role: "status", "aria-live": "polite", popover: null });
  return holder;
}

/** @param {import("../core/dom.js").Child} says @param {"plain" | "ok" | "bad"} [tone] @param {{stays?: boolean}} [how] `stays` until whoever said it takes it away: something is going on */
export function toast(says, tone = "plain", { stays = false } = {}) {
  const follow = (/** @type {Event} */ event) => /** @type {HTMLElement} */ (event.target).closest("a:not([download])") && made.remove();
  const made = h("div", { class: "toast", data: { tone }, on: { click: follow } });
  append(made, [
    h("div", null, says),
    h("button", { type: "button", class: "plain icon-only small", "aria-label": "Close this message", on: { click: () => made.remove() } }, icon("close")),
  ]);
  toastHolder().append(made);
  if (!stays && tone !== "bad" && made.querySelector("a") === null) window.setTimeout(() => made.remove(), STAYS_MS);
  return made;
}

/** Do something a person asked for, and say what went wrong if it did. @template T @param {() => Promise<T>} run @returns {Promise<T | undefined>} */
export async function tellIfFails(run) {
  try {
    return await run();
  } catch (error) {
    toast(/** @type {Error} */ (error).message, "bad");
    return undefined;
  }
}
