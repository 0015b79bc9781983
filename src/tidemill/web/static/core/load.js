// @ts-check
/** Something that is asked for: loading, there, or failed with a way to try again. */
import { isAbort, now, signIns } from "./api.js";
import { effect, onCleanup, scope, signal, untracked, batch } from "./signal.js";
import { isLive, toldSoFar } from "./sse.js";

/**
 * @template T
 * @typedef {object} Loaded
 * @property {import("./signal.js").Signal<T | null>} data what came last; kept while it is asked for again
 * @property {import("./signal.js").Signal<Error | null>} error
 * @property {import("./signal.js").Signal<boolean>} isLoading
 * @property {import("./signal.js").Signal<number>} at when it came
 * @property {import("./signal.js").Signal<{n: number} | null>} since which news of jobs it may not know: for `onJobs`
 * @property {() => Promise<void>} again
 * @property {(least?: number) => void} soon again, but not before the last answer is there, nor more often than every so many milliseconds, nor when not live
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
  const since = signal(/** @type {{n: number} | null} */ (null));
  /** @type {AbortController | null} */
  let current = null;
  let timer = 0;
  let endedAt = 0;
  /** Wanted again while an answer was on its way: so many milliseconds after it. @type {number | null} */
  let wanted = null;

  /** @param {(signal: AbortSignal) => Promise<T>} how */
  async function run(how) {
    current?.abort();
    const mine = (current = new AbortController());
    window.clearTimeout(timer);
    timer = 0;
    wanted = null;
    isLoading.value = true;
    const told = toldSoFar();
    try {
      const found = await how(mine.signal);
      if (mine.signal.aborted) return;
      batch(() => {
        data.value = found;
        error.value = null;
        at.value = now();
        since.value = told;
      });
    } catch (problem) {
      if (!mine.signal.aborted && !isAbort(problem)) error.value = /** @type {Error} */ (problem);
    } finally {
      if (current === mine) {
        endedAt = performance.now();
        isLoading.value = false;
        if (wanted !== null && !mine.signal.aborted) soon(wanted);
      }
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

  // News come quicker than some answers: a request that is under way is waited for, never begun anew because of them.
  function soon(least = 2_000) {
    if (timer || !isLive.peek()) return;
    if (isLoading.peek()) {
      wanted = least;
      return;
    }
    timer = window.setTimeout(() => {
      timer = 0;
      if (isLive.peek()) again();
    }, Math.max(0, endedAt + least - performance.now()));
  }
  return { data, error, isLoading, at, since, again, soon };
}

const FIRST_MS = 400;
const SLOWEST_MS = 5_000;

/**
 * Ask again and again until it is over: less and less often, and not at all while nothing is asked for by itself.
 * @template T
 * @param {() => Promise<T>} ask
 * @param {(found: T) => boolean} isOver
 * @param {{signal?: AbortSignal, step?: (found: T) => void}} [how] `signal` ends it with an AbortError: its screen is gone
 * @returns {Promise<T>}
 */
export async function until(ask, isOver, { signal, step } = {}) {
  for (let wait = FIRST_MS; ; wait = Math.min(SLOWEST_MS, wait * 1.3)) {
    signal?.throwIfAborted();
    const found = await ask();
    signal?.throwIfAborted();
    step?.(found);
    if (isOver(found)) return found;
    await new Promise((resolve) => window.setTimeout(resolve, wait));
    await untilLive();
  }
}

/** When somebody looks again, or it is over. @param {AbortSignal} [signal] */
export async function untilLive(signal) {
  if (isLive.peek()) return;
  let end = () => {};
  await new Promise((resolve) => {
    const look = () => isLive.value && resolve(null);
    [, end] = scope(() => effect(look)); // of nobody's: who waits may be an effect that ends meanwhile
    signal?.addEventListener("abort", resolve, { once: true });
  });
  end();
}

/** What something comes to, at most every so often: for announcements, which nobody could follow otherwise. @param {() => string} look @param {number} [ms] */
export function calm(look, ms = 15_000) {
  const said = signal(untracked(look));
  every(() => (said.value = look()), ms);
  return said;
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
