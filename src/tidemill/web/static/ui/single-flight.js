// @ts-check
/** Click listeners for actions that take a while. */

/**
 * A listener that runs once at a time. It ignores clicks while it is running, and the second click of a double click.
 * The button is not disabled, so that it keeps the focus.
 * @param {(event: Event) => any} run
 * @returns {(event: Event) => Promise<void>}
 */
export function singleFlight(run) {
  let isRunning = false;
  return async (event) => {
    if (isRunning || /** @type {UIEvent} */ (event).detail > 1) return;
    const button = event.currentTarget instanceof HTMLElement ? event.currentTarget : null;
    isRunning = true;
    button?.setAttribute("aria-busy", "true");
    try {
      await run(event);
    } finally {
      isRunning = false;
      button?.removeAttribute("aria-busy");
    }
  };
}
