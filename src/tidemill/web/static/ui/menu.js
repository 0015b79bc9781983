// @ts-check
/** A button that opens a few actions. */
import { h, uid } from "../core/dom.js";
import { onCleanup } from "../core/signal.js";
import { icon } from "./icons.js";

/** @typedef {{label: string, icon?: string, run: () => void, isDanger?: boolean, why?: string | null}} Action `why` it cannot be done now */

/**
 * @param {string} label
 * @param {() => Action[]} actions asked for when it is opened
 * @param {{content?: import("../core/dom.js").Child, class?: string}} [how]
 */
export function menuButton(label, actions, how = {}) {
  const id = uid("menu");
  const list = h("div", { class: "menu", role: "menu", popover: "auto", id, "aria-label": label });
  const button = h(
    "button",
    { type: "button", class: how.class ?? "plain icon-only small", "aria-label": how.content ? null : label, "aria-haspopup": "menu", "aria-expanded": "false", on: { click: () => open() } },
    how.content ?? icon("dots"),
  );

  function open() {
    list.replaceChildren(...actions().map(entry));
    if (!list.isConnected) document.body.append(list);
    list.showPopover();
    place();
    /** @type {HTMLElement | null} */ (list.querySelector("button:not(:disabled)"))?.focus();
  }

  /** @param {Action} action */
  function entry(action) {
    return h(
      "button",
      {
        type: "button",
        role: "menuitem",
        class: action.isDanger ? "danger" : null,
        disabled: Boolean(action.why),
        title: action.why ?? null,
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

  function place() {
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
  onCleanup(() => list.remove()); // it stands outside of its screen, and goes with it
  return button;
}
