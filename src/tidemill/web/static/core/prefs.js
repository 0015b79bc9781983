// @ts-check
/** What this browser was told to remember; nothing of it leaves the browser. */
import { Signal, signal } from "./signal.js";

/** @type {Map<string, Signal<any>>} */
const known = new Map();

/**
 * A signal that outlives the tab, if the browser keeps anything.
 * @template T
 * @param {string} name
 * @param {T} otherwise
 * @returns {Signal<T>}
 */
export function preference(name, otherwise) {
  const before = known.get(name);
  if (before !== undefined) return before;
  const made = signal(read(name, otherwise));
  known.set(name, made);
  return made;
}

/** @template T @param {string} name @param {T} value */
export function remember(name, value) {
  preference(name, value).value = value;
  try {
    localStorage.setItem(`tidemill.${name}`, JSON.stringify(value));
  } catch {
    // It holds for this tab.
  }
}

/** @template T @param {string} name @param {T} otherwise @returns {T} */
function read(name, otherwise) {
  try {
    const text = localStorage.getItem(`tidemill.${name}`);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
}
