// @ts-check
/** Settings that are stored in this browser only. */
import { signal } from "./signal.js";

/** @template T @typedef {import("./signal.js").Signal<T>} Signal */

/** @type {Map<string, Signal<any>>} */
const signals = new Map();

/**
 * The signal of a setting that is stored across tabs, if the browser allows it.
 * @template T
 * @param {string} name
 * @param {T} fallback
 * @returns {Signal<T>}
 */
export function preference(name, fallback) {
  const before = signals.get(name);
  if (before !== undefined) return before;
  const made = signal(readStored(name, fallback));
  signals.set(name, made);
  return made;
}

/** @template T @param {string} name @param {T} value */
export function setPreference(name, value) {
  preference(name, value).value = value;
  try {
    localStorage.setItem(`tidemill.${name}`, JSON.stringify(value));
  } catch {
    // Storage is unavailable: the setting applies to this tab only.
  }
}

/** @template T @param {string} name @param {T} fallback @returns {T} */
function readStored(name, fallback) {
  try {
    const text = localStorage.getItem(`tidemill.${name}`);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}
