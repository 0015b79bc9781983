// @ts-check
/** Modal dialogs, based on the `dialog` element. */
import { appendChildren, h, uniqueId } from "../core/dom.js";
import { effectScope, signal } from "../core/signal.js";
import { singleFlight } from "./single-flight.js";

/** @typedef {import("../core/dom.js").Child} Child */

/**
 * Shows a dialog and resolves with its answer when it closes. `content` receives a function that closes the dialog with an
 * answer, and a signal that prevents other ways to close it.
 * @template T
 * @param {string} title
 * @param {(close: (answer: T | null) => void, isFirm: import("../core/signal.js").Signal<boolean>) => Child[]} content
 * @param {{isLocked?: boolean, isWide?: boolean}} [options] locked: Escape does not close it
 * @returns {Promise<T | null>}
 */
export function showDialog(title, content, options = {}) {
  return new Promise((resolve) => {
    const name = uniqueId("dialog");
    /** @type {T | null} */
    let answer = null;
    const isLocked = signal(options.isLocked ?? false);
    const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { class: options.isWide ? "wide" : null, "aria-labelledby": name, closedby: () => (isLocked.value ? "none" : null) }));
    const close = (/** @type {T | null} */ given) => {
      answer = given;
      dialog.close();
    };
    const [, end] = effectScope(() => appendChildren(dialog, [h("form", { method: "dialog", on: { submit: (/** @type {Event} */ e) => e.preventDefault() } }, h("h2", { id: name }, title), content(close, isLocked))]));
    // Both events, because browsers without `closedby` let a second Escape through.
    for (const type of ["cancel", "keydown"]) dialog.addEventListener(type, (event) => isLocked.peek() && (!("key" in event) || event.key === "Escape") && event.preventDefault());
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
 * Asks for confirmation and runs the action. The dialog stays open until the service has answered, and shows errors.
 * @param {{title: string, content: Child[], actionLabel: string, run: () => Promise<any>, isDanger?: boolean}} options
 * @returns {Promise<boolean>} whether the action was done
 */
export async function confirmDialog({ title, content, actionLabel, run, isDanger = false }) {
  const done = await showDialog(title, (close, isLocked) => {
    const { errorLine, submit } = submitHandler(close, isLocked, async () => (await run(), true));
    return [content, errorLine, h("div", { class: "acts" }, h("button", { type: "button", autofocus: isDanger, disabled: isLocked, on: { click: () => close(null) } }, "Go back"), h("button", { type: "submit", class: isDanger ? "danger main-act" : "main-act", disabled: isLocked, on: { click: submit } }, actionLabel))];
  });
  return done === true;
}

/**
 * Creates the submit listener of a dialog and the line that shows its error. The dialog is locked while the action runs, so
 * that the user sees the result.
 * @template T
 * @param {(answer: T | null) => void} close @param {import("../core/signal.js").Signal<boolean>} isLocked @param {() => Promise<T>} run
 */
export function submitHandler(close, isLocked, run) {
  const errorLine = h("p", { class: "fault", role: "alert", hidden: true });
  const submit = singleFlight(async () => {
    isLocked.value = true;
    errorLine.hidden = true;
    try {
      close(await run());
    } catch (error) {
      errorLine.textContent = /** @type {Error} */ (error).message;
      errorLine.hidden = false;
      isLocked.value = false;
    }
  });
  return { errorLine, submit };
}
