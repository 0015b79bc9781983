// @ts-check
/** Data loaded from the API, with its loading and error state. */
import { isAbortError, serverNow, signInCount } from "./api.js";
import { currentUpdateCursor, isLive } from "./live-updates.js";
import { batch, effect, onCleanup, signal, untracked } from "./signal.js";

/**
 * @template T
 * @typedef {object} RemoteData
 * @property {import("./signal.js").Signal<T | null>} data the latest result; kept while it is reloaded
 * @property {import("./signal.js").Signal<Error | null>} error of the last request
 * @property {import("./signal.js").Signal<boolean>} isLoading true while a request is in progress
 * @property {import("./signal.js").Signal<number>} loadedAt when the latest result arrived
 * @property {import("./signal.js").Signal<{n: number} | null>} updateCursor the position in the stream when the request started: for `onJobUpdates`
 * @property {() => Promise<void>} reload sends the request again
 * @property {(minIntervalMs?: number) => void} reloadSoon reloads after the current request, at most once per interval in milliseconds, and only while live updates are on
 */

/**
 * Sends a request, and sends it again when a signal that `request` read changes.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} request
 * @returns {RemoteData<T>}
 */
export function remoteData(request) {
  const data = signal(/** @type {T | null} */ (null));
  const error = signal(/** @type {Error | null} */ (null));
  const isLoading = signal(false);
  const loadedAt = signal(0);
  const updateCursor = signal(/** @type {{n: number} | null} */ (null));
  /** @type {AbortController | null} */
  let current = null;
  let timer = 0;
  let endedAt = 0;
  /** Set if a reload was requested while a request was in progress: the interval to keep. @type {number | null} */
  let queuedIntervalMs = null;

  /** @param {(signal: AbortSignal) => Promise<T>} load */
  async function run(load) {
    current?.abort();
    const controller = (current = new AbortController());
    window.clearTimeout(timer);
    timer = 0;
    queuedIntervalMs = null;
    isLoading.value = true;
    const cursor = currentUpdateCursor();
    try {
      const result = await load(controller.signal);
      if (controller.signal.aborted) return;
      batch(() => {
        data.value = result;
        error.value = null;
        loadedAt.value = serverNow();
        updateCursor.value = cursor;
      });
    } catch (problem) {
      if (!controller.signal.aborted && !isAbortError(problem)) error.value = /** @type {Error} */ (problem);
    } finally {
      if (current === controller) {
        endedAt = performance.now();
        isLoading.value = false;
        if (queuedIntervalMs !== null && !controller.signal.aborted) reloadSoon(queuedIntervalMs);
      }
    }
  }

  effect(() => {
    void signInCount.value;
    run(request);
  });
  onCleanup(() => {
    current?.abort();
    window.clearTimeout(timer);
  });
  const reload = () => untracked(() => run(request));

  // Updates may arrive faster than responses. They must not abort a running request, or it would never finish.
  function reloadSoon(minIntervalMs = 2_000) {
    if (timer || !isLive.peek()) return;
    if (isLoading.peek()) {
      queuedIntervalMs = minIntervalMs;
      return;
    }
    timer = window.setTimeout(() => {
      timer = 0;
      if (isLive.peek()) reload();
    }, Math.max(0, endedAt + minIntervalMs - performance.now()));
  }
  return { data, error, isLoading, loadedAt, updateCursor, reload, reloadSoon };
}
