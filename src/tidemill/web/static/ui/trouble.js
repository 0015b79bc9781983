// @ts-check
/** What went wrong with something that is asked for: in its place while nothing is there, in a corner, where it moves nothing, once something is. */
import { h } from "../core/dom.js";
import { computed, effect, onCleanup, untracked } from "../core/signal.js";
import { failure } from "./empty.js";
import { icon } from "./icons.js";
import { toast } from "./toast.js";

/** @typedef {import("../core/load.js").Loaded<any>} Loaded */

/**
 * @param {Loaded[]} asked what fails together is told of once
 * @param {(error: Error) => boolean} [isSaidElsewhere]
 * @returns {Array<() => any>} the place of each
 */
export function trouble(asked, isSaidElsewhere = () => false) {
  // By its words: the same again is no news, and a button that is made anew loses its focus.
  const wrong = (/** @type {Loaded} */ one) => (one.error.value === null || isSaidElsewhere(one.error.value) ? "" : one.error.value.message);
  const stale = computed(() => [...new Set(asked.map((one) => (one.data.value === null ? "" : wrong(one))))].filter(Boolean).join("; "));
  effect(() => {
    if (stale.value === "") return;
    const told = untracked(() => toast([h("p", null, `What is shown could not be brought up to date: ${stale.value}`), h("button", { type: "button", class: "small", on: { click: again } }, icon("retry"), "Try again")], "bad"));
    onCleanup(() => told.remove());
  });
  function again() {
    for (const one of asked) if (one.error.peek() !== null) one.again();
  }
  return asked.map((one) => {
    const missing = computed(() => (one.data.value === null ? wrong(one) : ""));
    return () => (missing.value ? untracked(() => failure(/** @type {Error} */ (one.error.peek()), one.again)) : null);
  });
}
