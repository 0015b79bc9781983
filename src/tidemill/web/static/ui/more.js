// @ts-check
/** The button below a list that is longer than what is shown of it. */
import { h } from "../core/dom.js";
import { effect, onCleanup, untracked } from "../core/signal.js";
import { press } from "./press.js";
import { toast } from "./toast.js";

/**
 * Asks for the next page once at a time. An answer that comes when another list stands there is let go.
 * @template T
 * @param {import("../core/signal.js").Signal<string | null>} next where it begins; null at the end
 * @param {() => any} stands read for the signals it follows: what the next page is one of
 * @param {(after: string, signal: AbortSignal) => Promise<T>} ask
 * @param {(page: T) => void} add
 */
export function moreButton(next, stands, ask, add) {
  let stop = new AbortController();
  effect(() => {
    stands();
    stop.abort();
    stop = new AbortController();
  });
  onCleanup(() => stop.abort());
  const go = async () => {
    const { signal } = stop;
    const after = next.peek();
    if (after === null) return;
    try {
      const page = await ask(after, signal);
      if (!signal.aborted) untracked(() => add(page));
    } catch (error) {
      if (!signal.aborted) toast(/** @type {Error} */ (error).message, "bad");
    }
  };
  return h("button", { type: "button", class: "plain", hidden: () => next.value === null, on: { click: press(go) } }, "Show more");
}
