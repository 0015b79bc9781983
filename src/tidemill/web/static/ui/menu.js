// @ts-check
/** A button that opens a menu of actions. */
import { h, uniqueId } from "../core/dom.js";
import { onCleanup } from "../core/signal.js";
import { icon } from "./icons.js";

/** @typedef {{label: string, icon?: string, run: () => void, isDanger?: boolean, disabledReason?: string | null}} Action an action with a `disabledReason` is disabled */

/**
 * @param {string} label
 * @param {() => Action[]} actions called when the menu opens
 * @param {{content?: import("../core/dom.js").Child, class?: string}} [options]
 */
export function menuButton(label, actions, options = {}) {
  const id = uniqueId("menu");
  const list = h("div", { class: "menu", role: "menu", popover: "auto", id, "aria-label": label });
  const button = h(
    "button",
    { type: "button", class: options.class ?? "plain icon-only small", "aria-label": options.content ? null : label, "aria-haspopup": "menu", "aria-expanded": "false", on: { click: () => open() } },
    options.content ?? icon("dots"),
  );

  function open() {
    list.replaceChildren(...actions().map(menuItem));
    if (!list.isConnected) document.body.append(list);
    list.showPopover();
    position();
    /** @type {HTMLElement | null} */ (list.querySelector("button:not(:disabled)"))?.focus();
  }

  /** @param {Action} action */
  function menuItem(action) {
    return h(
      "button",
      {
        type: "button",
        role: "menuitem",
        class: action.isDanger ? "danger" : null,
        disabled: Boolean(action.disabledReason),
        title: action.disabledReason ?? null,
        on: {
          click: () => {
            list.hidePopover();
            action.run();
          },
        },
      },
      action.icon ? icon(action.icon) : null,
      action.label,
    );
  }

  function position() {
    const at = button.getBoundingClientRect();
    const size = list.getBoundingClientRect();
    const below = at.bottom + size.height + 8 < window.innerHeight;
    list.style.setProperty("top", `${below ? at.bottom + 4 : Math.max(4, at.top - size.height - 4)}px`);
    list.style.setProperty("left", `${Math.max(4, Math.min(at.right - size.width, window.innerWidth - size.width - 4))}px`);
  }

  list.addEventListener("toggle", (event) => {
    const isOpen = /** @type {any} */ (event).newState === "open";
    button.setAttribute("aria-expanded", String(isOpen));
    if (isOpen) return;
    if (list.contains(document.activeElement)) button.focus();
    list.remove();
  });
  list.addEventListener("keydown", (event) => {
    const entries = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("button:not(:disabled)")]);
    const at = entries.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    entries[(at + step + entries.length) % entries.length]?.focus();
  });
  onCleanup(() => list.remove()); // the menu is outside of the screen's element, and has to be removed with it
  return button;
}
