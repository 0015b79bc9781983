// @ts-check
/** Timers and polling that stop while live updates are paused or the tab is hidden. */
import { serverNow } from "./api.js";
import { isLive } from "./live-updates.js";
import { effect, effectScope, onCleanup, signal, untracked } from "./signal.js";

const FIRST_DELAY_MS = 400;
const MAX_DELAY_MS = 5_000;

/**
 * Polls until the result is final, with growing delays, and pauses while live updates are off.
 * @template T
 * @param {() => Promise<T>} request
 * @param {(found: T) => boolean} isDone
 * @param {{signal?: AbortSignal, onStep?: (found: T) => void}} [options] aborting `signal` rejects with an AbortError
 * @returns {Promise<T>}
 */
export async function pollUntil(request, isDone, { signal, onStep } = {}) {
  for (let wait = FIRST_DELAY_MS; ; wait = Math.min(MAX_DELAY_MS, wait * 1.3)) {
    signal?.throwIfAborted();
    const found = await request();
    signal?.throwIfAborted();
    onStep?.(found);
    if (isDone(found)) return found;
    await new Promise((resolve) => window.setTimeout(resolve, wait));
    await waitUntilLive();
  }
}

/** Resolves when live updates are on again, or when `signal` aborts. @param {AbortSignal} [signal] */
export async function waitUntilLive(signal) {
  if (isLive.peek()) return;
  let end = () => {};
  await new Promise((resolve) => {
    const check = () => isLive.value && resolve(null);
    [, end] = effectScope(() => effect(check)); // a scope of its own, as the effect that waits may end in the meantime
    signal?.addEventListener("abort", resolve, { once: true });
  });
  end();
}

/** A text that changes at a fixed interval at most. For screen reader announcements, which must not be too frequent. @param {() => string} readText @param {number} [ms] */
export function throttledText(readText, ms = 15_000) {
  const text = signal(untracked(readText));
  everyWhileLive(() => (text.value = readText()), ms);
  return text;
}

/** Runs a function at an interval while live updates are on. @param {() => void} run @param {number} ms */
export function everyWhileLive(run, ms) {
  effect(() => {
    if (!isLive.value) return;
    const timer = window.setInterval(() => untracked(run), ms);
    onCleanup(() => window.clearInterval(timer));
  });
}

/** The current time as a signal, updated while live updates are on. */
export function liveClock(ms = 1_000) {
  const at = signal(serverNow());
  everyWhileLive(() => {
    at.value = serverNow();
  }, ms);
  return at;
}
