// @ts-check
/** Something that is asked for: loading, there, or failed with a way to try again. */
import { isAbort, now, signIns } from "./api.js";
import { effect, onCleanup, signal, untracked, batch } from "./signal.js";
import { isLive } from "./sse.js";

/**
 * @template T
 * @typedef {object} Loaded
 * @property {import("./signal.js").Signal<T | null>} data what came last; kept while it is asked for again
 * @property {import("./signal.js").Signal<Error | null>} error
 * @property {import("./signal.js").Signal<boolean>} isLoading
 * @property {import("./signal.js").Signal<number>} at when it came
 * @property {() => Promise<void>} again
 * @property {(least?: number) => void} soon again, but not more often than every so many milliseconds, nor when not live
 */

/**
 * Ask, and ask again when a signal that `ask` read has changed.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} ask
 * @returns {Loaded<T>}
 */
export function load(ask) {
  const data = signal(/** @type {T | null} */ (null));
  const error = signal(/** @type {Error | null} */ (null));
  const isLoading = signal(false);
  const at = signal(0);
  /** @type {AbortController | null} */
  let current = null;
  let timer = 0;

  /** @param {(signal: AbortSignal) => Promise<T>} how */
  async function run(how) {
    current?.abort();
    const mine = (current = new AbortController());
    isLoading.value = true;
    try {
      const found = await how(mine.signal);
      if (mine.signal.aborted) return;
      batch(() => {
        data.value = found;
        error.value = null;
        at.value = now();
      });
    } catch (problem) {
      if (!mine.signal.aborted && !isAbort(problem)) error.value = /** @type {Error} */ (problem);
    } finally {
      if (current === mine) isLoading.value = false;
    }
  }

  effect(() => {
    signIns.value;
    run(ask);
  });
  onCleanup(() => {
    current?.abort();
    window.clearTimeout(timer);
  });
  const again = () => untracked(() => run(ask));
  return {
    data,
    error,
    isLoading,
    at,
    again,
    soon(least = 2_000) {
      if (timer || !isLive.peek()) return;
      const wait = Math.max(0, at.peek() + least - now());
      timer = window.setTimeout(() => {
        timer = 0;
        if (isLive.peek()) again();
      }, wait);
    },
  };
}

/** Run now and then while somebody looks and nothing is paused. @param {() => void} run @param {number} ms */
export function every(run, ms) {
  effect(() => {
    if (!isLive.value) return;
    const timer = window.setInterval(() => untracked(run), ms);
    onCleanup(() => window.clearInterval(timer));
  });
}

/** The time, every second while somebody looks. */
export function ticking(ms = 1_000) {
  const at = signal(now());
  every(() => {
    at.value = now();
  }, ms);
  return at;
}
