// @ts-check
/** Questions, in the browser's own dialog. */
import { append, h, uid } from "../core/dom.js";
import { scope, signal } from "../core/signal.js";
import { press } from "./press.js";

/** @typedef {import("../core/dom.js").Child} Child */

/**
 * Show a dialog; the answer comes when it is closed. `content` gets a function that closes it with an answer, and whether
 * nothing else closes it.
 * @template T
 * @param {string} title
 * @param {(close: (answer: T | null) => void, isFirm: import("../core/signal.js").Signal<boolean>) => Child[]} content
 * @param {{isFirm?: boolean}} [how] firm: Escape does not close it
 * @returns {Promise<T | null>}
 */
export function showDialog(title, content, how = {}) {
  return new Promise((resolve) => {
    const name = uid("dialog");
    /** @type {T | null} */
    let answer = null;
    const isFirm = signal(how.isFirm ?? false);
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { "aria-labelledby": name, closedby: () => (isFirm.value ? "none" : null) }));
    const close = (/** @type {T | null} */ given) => {
      answer = given;
      dialog.close();
    };
    const [, end] = scope(() => append(dialog, [h("form", { method: "dialog", on: { submit: (/** @type {Event} */ e) => e.preventDefault() } }, h("h2", { id: name }, title), content(close, isFirm))]));
    // Both: a browser that does not know closedby would let a second Escape through, whatever the first was told.
    for (const name of ["cancel", "keydown"]) dialog.addEventListener(name, (event) => isFirm.peek() && (!("key" in event) || event.key === "Escape") && event.preventDefault());
    dialog.addEventListener("close", () => {
      end();
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/**
 * Ask before something is done, and do it: the dialog stays until the service has answered, and shows what it said.
 * @param {{title: string, says: Child[], act: string, run: () => Promise<any>, isDanger?: boolean}} asked
 * @returns {Promise<boolean>} whether it was done
 */
export async function confirmDialog({ title, says, act, run, isDanger = false }) {
  const done = await showDialog(title, (close, isFirm) => {
    const { fault, go } = answering(close, isFirm, async () => (await run(), true));
    return [says, fault, h("div", { class: "acts" }, h("button", { type: "button", autofocus: isDanger, disabled: isFirm, on: { click: () => close(null) } }, "Keep as it is"), h("button", { type: "submit", class: isDanger ? "danger main-act" : "main-act", disabled: isFirm, on: { click: go } }, act))];
  });
  return done === true;
}

/**
 * What the main button of a dialog does, and where it says what went wrong. Nothing closes the dialog meanwhile: whoever went
 * then would not hear how it ended.
 * @template T
 * @param {(answer: T | null) => void} close @param {import("../core/signal.js").Signal<boolean>} isFirm @param {() => Promise<T>} run
 */
export function answering(close, isFirm, run) {
  const fault = h("p", { class: "fault", role: "alert", hidden: true });
  const go = press(async () => {
    isFirm.value = true;
    fault.hidden = true;
    try {
      close(await run());
    } catch (error) {
      fault.textContent = /** @type {Error} */ (error).message;
      fault.hidden = false;
      isFirm.value = false;
    }
  });
  return { fault, go };
}
