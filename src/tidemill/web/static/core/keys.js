// @ts-check
/** Keys that work on every screen. All of them can be turned off (WCAG 2.1.4). */
import { preference } from "./prefs.js";
import { onCleanup } from "./signal.js";

/** @typedef {{keys: string, does: string, run: () => void}} Binding */

export const areKeysOn = preference("keys", true);
/** @type {Binding[]} */
const bindings = [];
let begun = "";
let begunAt = 0;

/** For as long as the scope around this lasts. @param {string} keys as in `g j` @param {string} does @param {() => void} run */
export function onKeys(keys, does, run) {
  const one = { keys, does, run };
  bindings.push(one);
  onCleanup(() => bindings.splice(bindings.indexOf(one), 1));
}

/** What can be pressed now. */
export function knownKeys() {
  return bindings.map(({ keys, does }) => ({ keys, does }));
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function startKeys() {
  // A key that is held down presses a button once, not as often as it repeats.
  document.addEventListener("keydown", (event) => {
    if (event.repeat && event.key === "Enter" && event.target instanceof HTMLButtonElement) event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (!areKeysOn.peek() || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target) || document.querySelector("dialog:modal")) return;
    const together = Date.now() - begunAt < 1000 && begun ? `${begun} ${event.key}` : event.key;
    const found = bindings.findLast((one) => one.keys === together) ?? bindings.findLast((one) => one.keys === event.key);
    begun = event.key;
    begunAt = Date.now();
    if (found === undefined) return;
    event.preventDefault();
    begun = "";
    found.run();
  });
}
