// @ts-check
/** The button that loads the next page of a list. */
import { h } from "../core/dom.js";
import { effect, onCleanup, untracked } from "../core/signal.js";
import { singleFlight } from "./single-flight.js";
import { showToast } from "./toast.js";

/**
 * Loads one page at a time. A response is dropped if the list has changed since the request.
 * @template T
 * @param {import("../core/signal.js").Signal<string | null>} next the cursor of the next page; null at the end
 * @param {() => any} listIdentity reads the signals that identify the list
 * @param {(after: string, signal: AbortSignal) => Promise<T>} fetchPage
 * @param {(page: T) => void} appendPage
 */
export function loadMoreButton(next, listIdentity, fetchPage, appendPage) {
  let stop = new AbortController();
  effect(() => {
    listIdentity();
    stop.abort();
    stop = new AbortController();
  });
  onCleanup(() => stop.abort());
  const go = async () => {
    const { signal } = stop;
    const after = next.peek();
    if (after === null) return;
    try {
      const page = await fetchPage(after, signal);
      if (!signal.aborted) untracked(() => appendPage(page));
    } catch (error) {
      if (!signal.aborted) showToast(/** @type {Error} */ (error).message, "bad");
    }
  };
  return h("button", { type: "button", class: "plain", hidden: () => next.value === null, on: { click: singleFlight(go) } }, "Show more");
}
