// @ts-check
/** A panel beside the list, for one of its rows. The list stays in reach; Escape closes it. */
import { append, h, uid } from "../core/dom.js";
import { path } from "../core/router.js";
import { effect, scope } from "../core/signal.js";
import { icon } from "./icons.js";

const covering = window.matchMedia("(max-width: 38rem)"); // as wide as it is
const behind = () => /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".frame > :is(.skip, .bar, .nav, .content)"));

/** @typedef {{close: () => void, element: HTMLElement}} Drawer */

/** Ends the one that is open. There is one at most, and it goes with its screen. */
let leave = () => {};

/**
 * @param {import("../core/dom.js").Child} title
 * @param {() => import("../core/dom.js").Child[]} content
 * @param {{onClose?: () => void, acts?: import("../core/dom.js").Child[]}} [how] `onClose` when somebody closed it, to stay on its screen
 * @returns {Drawer}
 */
export function openDrawer(title, content, how = {}) {
  leave();
  const name = uid("drawer");
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const body = h("div", { class: "body", tabindex: "0", role: "group", "aria-labelledby": name });
  let isOpen = true;
  const gone = () => {
    isOpen = false;
    leave = () => {};
    covering.removeEventListener("change", keepOut);
    for (const part of behind()) part.inert = false;
    end();
    element.remove();
  };
  const close = () => {
    if (!isOpen) return;
    const hadFocus = element.contains(document.activeElement);
    gone();
    if (hadFocus && before?.isConnected) before.focus();
    how.onClose?.();
  };
  // Where it covers everything, Tab must not lead behind it.
  const keepOut = () => {
    for (const part of behind()) part.inert = covering.matches;
  };
  const element = h(
    "aside",
    { class: "drawer", "aria-labelledby": name },
    h("header", null, h("h2", { id: name }, title), how.acts ?? null, h("button", { type: "button", class: "plain icon-only", "aria-label": "Close", on: { click: close } }, icon("close"))),
    body,
  );
  const at = path.peek();
  const [, end] = scope(() => {
    append(body, content());
    effect(() => {
      if (path.value !== at) gone();
    });
  });
  leave = gone;
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.stopPropagation();
    close();
  });
  document.body.append(element);
  covering.addEventListener("change", keepOut);
  keepOut();
  body.focus({ preventScroll: true });
  return { close, element };
}
