// @ts-check
/** Keyboard shortcuts of all screens. Users can turn them off (WCAG 2.1.4). */
import { preference } from "./preferences.js";
import { onCleanup } from "./signal.js";

/** @typedef {{keys: string, description: string, run: () => void}} Shortcut */

export const areShortcutsEnabled = preference("keys", true);
/** @type {Shortcut[]} */
const shortcuts = [];
let firstKey = "";
let firstKeyAt = 0;

/** Adds a shortcut until the surrounding scope ends. @param {string} keys such as `g j` @param {string} description @param {() => void} run */
export function addShortcut(keys, description, run) {
  const shortcut = { keys, description, run };
  shortcuts.push(shortcut);
  onCleanup(() => shortcuts.splice(shortcuts.indexOf(shortcut), 1));
}

/** The shortcuts that are active now. */
export function listShortcuts() {
  return shortcuts.map(({ keys, description }) => ({ keys, description }));
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function startShortcuts() {
  // Holding Enter down must activate a button only once.
  document.addEventListener("keydown", (event) => {
    if (event.repeat && event.key === "Enter" && event.target instanceof HTMLButtonElement) event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (!areShortcutsEnabled.peek() || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target) || document.querySelector("dialog:modal")) return;
    const sequence = Date.now() - firstKeyAt < 1000 && firstKey ? `${firstKey} ${event.key}` : event.key;
    const found = shortcuts.findLast((one) => one.keys === sequence) ?? shortcuts.findLast((one) => one.keys === event.key);
    firstKey = event.key;
    firstKeyAt = Date.now();
    if (found === undefined) return;
    event.preventDefault();
    firstKey = "";
    found.run();
  });
}
