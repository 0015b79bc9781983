// @ts-check
/** Reports failed requests: in place while there is no data, in a toast once there is, so that nothing moves. */
import { h } from "../core/dom.js";
import { computed, effect, onCleanup, untracked } from "../core/signal.js";
import { icon } from "./icons.js";
import { errorNotice } from "./notices.js";
import { showToast } from "./toast.js";

/** @typedef {import("../core/remote-data.js").RemoteData<any>} Loaded */

/**
 * @param {Loaded[]} sources the same error of several sources is shown once
 * @param {(error: Error) => boolean} [isHandledElsewhere]
 * @returns {Array<() => any>} one reactive child for each source
 */
export function errorBanners(sources, isHandledElsewhere = () => false) {
  // Compared by text, so that a repeated error does not render its button again, which would lose the focus.
  const messageOf = (/** @type {Loaded} */ one) => (one.error.value === null || isHandledElsewhere(one.error.value) ? "" : one.error.value.message);
  const staleMessage = computed(() => [...new Set(sources.map((one) => (one.data.value === null ? "" : messageOf(one))))].filter(Boolean).join("; "));
  effect(() => {
    if (staleMessage.value === "") return;
    const banner = untracked(() => showToast([h("p", null, `Could not refresh: ${staleMessage.value}`), h("button", { type: "button", class: "small", on: { click: retry } }, icon("refresh"), "Try again")], "bad"));
    onCleanup(() => banner.remove());
  });
  function retry() {
    for (const one of sources) if (one.error.peek() !== null) one.reload();
  }
  return sources.map((one) => {
    const missingMessage = computed(() => (one.data.value === null ? messageOf(one) : ""));
    return () => (missingMessage.value ? untracked(() => errorNotice(/** @type {Error} */ (one.error.peek()), one.reload)) : null);
  });
}
