// @ts-check
/** Toasts: short messages in a corner, announced politely. Errors stay until the user closes them; others close themselves. */
import { appendChildren, h } from "../core/dom.js";
import { icon } from "./icons.js";

const VISIBLE_MS = 6_000;
const VISIBLE_WITH_LINK_MS = 30_000;
const MAX_TOASTS = 4;
/** @type {HTMLElement | null} */
let container = null;

/** Created once with the layout, because screen readers only announce changes of an existing live region. */
export function toastContainer() {
  if (container !== null) return container;
  container = h("div", { class: "toasts", role: "status", "aria-live": "polite", popover: null });
  new ResizeObserver(([entry]) => document.documentElement.style.setProperty("--toasts-height", `${Math.ceil(entry.contentRect.height)}px`)).observe(container);
  // Escape closes the newest toast, unless something else has handled the key: a dialog, a menu or a drawer.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open], [popover]:popover-open")) return;
    const newest = /** @type {HTMLElement | null} */ (container?.lastElementChild ?? null);
    if (newest === null) return;
    event.preventDefault();
    newest.remove();
  });
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
  const all = toastContainer();
  while (all.children.length >= MAX_TOASTS) (all.querySelector(".toast:not([data-tone='bad'])") ?? all.firstElementChild)?.remove();
  all.append(made);
  if (!isPersistent && tone !== "bad") closeAfter(made, made.querySelector("a") === null ? VISIBLE_MS : VISIBLE_WITH_LINK_MS);
  return made;
}

/** Waits while the user points at the toast or has the focus in it. @param {HTMLElement} toast @param {number} delayMs */
function closeAfter(toast, delayMs) {
  window.setTimeout(() => {
    if (toast.matches(":hover, :focus-within")) closeAfter(toast, 1_000);
    else toast.remove();
  }, delayMs);
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
