// @ts-check
/** Presses on buttons whose answer takes a while. */

/**
 * A listener that runs once at a time: presses meanwhile, and the second of a double click, mean the first.
 * The button stays in reach while it waits, so that the focus stays where it is.
 * @param {(event: Event) => any} run
 * @returns {(event: Event) => Promise<void>}
 */
export function press(run) {
  let isUnderWay = false;
  return async (event) => {
    if (isUnderWay || /** @type {UIEvent} */ (event).detail > 1) return;
    const button = event.currentTarget instanceof HTMLElement ? event.currentTarget : null;
    isUnderWay = true;
    button?.setAttribute("aria-busy", "true");
    try {
      await run(event);
    } finally {
      isUnderWay = false;
      button?.removeAttribute("aria-busy");
    }
  };
}
