// @ts-check
/** A panel beside a list that shows one of its rows. The list stays usable; Escape closes the panel. */
import { appendChildren, h, uniqueId } from "../core/dom.js";
import { path } from "../core/router.js";
import { effect, effectScope } from "../core/signal.js";
import { icon } from "./icons.js";

const narrowScreen = window.matchMedia("(max-width: 38rem)"); // the width of the drawer
const elementsBehind = () => /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".frame > :is(.skip, .bar, .nav, .content)"));

/** @typedef {{close: () => void, element: HTMLElement}} Drawer */

/** Closes the current drawer. There is one at most, and it closes when the user leaves its screen. */
let closeCurrent = () => {};

/**
 * @param {import("../core/dom.js").Child} title
 * @param {() => import("../core/dom.js").Child[]} content
 * @param {{onClose?: () => void, actions?: import("../core/dom.js").Child[]}} [options] `onClose` is called if the user closes it and stays on the screen
 * @returns {Drawer}
 */
export function openDrawer(title, content, options = {}) {
  closeCurrent();
  const name = uniqueId("drawer");
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const body = h("div", { class: "body", tabindex: "0", role: "group", "aria-labelledby": name });
  let isOpen = true;
  const destroy = () => {
    isOpen = false;
    closeCurrent = () => {};
    narrowScreen.removeEventListener("change", updateInert);
    for (const part of elementsBehind()) part.inert = false;
    end();
    element.remove();
  };
  const close = () => {
    if (!isOpen) return;
    const hadFocus = element.contains(document.activeElement);
    destroy();
    if (hadFocus && before?.isConnected) before.focus();
    // The list may be hidden by now.
    if (hadFocus && document.activeElement === document.body) document.getElementById("main")?.focus({ preventScroll: true });
    options.onClose?.();
  };
  // On narrow screens the drawer covers everything: keep Tab inside it.
  const updateInert = () => {
    for (const part of elementsBehind()) part.inert = narrowScreen.matches;
  };
  const element = h(
    "aside",
    { class: "drawer", "aria-labelledby": name },
    h("header", null, h("h2", { id: name }, title), options.actions ?? null, h("button", { type: "button", class: "plain icon-only", "aria-label": "Close", on: { click: close } }, icon("close"))),
    body,
  );
  const at = path.peek();
  const [, end] = effectScope(() => {
    appendChildren(body, content());
    effect(() => {
      if (path.value !== at) destroy();
    });
  });
  closeCurrent = destroy;
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.stopPropagation();
    close();
  });
  document.body.append(element);
  narrowScreen.addEventListener("change", updateInert);
  updateInert();
  body.focus({ preventScroll: true });
  return { close, element };
}
