// @ts-check
/** "Process now": the service works on one job in slices until the user stops it. */
import { ApiError, api, isAbortError } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatDuration, formatNumber } from "../core/format.js";
import { areUpdatesPaused } from "../core/live-updates.js";
import { waitUntilLive } from "../core/polling.js";
import { onCleanup, signal } from "../core/signal.js";
import { showDialog } from "../ui/dialog.js";
import { icon } from "../ui/icons.js";

const SLICE_MS = 5_000;
const MAX_WAIT_S = 15;
const RETRY_DELAY_S = 2;

/** @typedef {{n: number, text: string, isBad?: boolean}} Line */

/** @param {any} job @param {() => void} [done] called when the dialog is closed */
export async function processNow(job, done) {
  await showDialog(`Process ${job.key} now`, (close) => {
    const lines = signal(/** @type {Line[]} */ ([]));
    const status = signal("");
    const isRunning = signal(false);
    const totals = { settled: 0, failed: 0 };
    let stop = new AbortController();
    onCleanup(() => stop.abort());

    const addLine = (/** @type {string} */ text, isBad = false) => lines.update((now) => [...now.slice(-49), { n: (now.at(-1)?.n ?? 0) + 1, text, isBad }]);

    async function run() {
      stop = new AbortController();
      isRunning.value = true;
      try {
        while (!stop.signal.aborted && (await runSlice())) {
          if (areUpdatesPaused.peek()) return void addLine("Live updates are paused: each click on Continue runs one slice.");
          await waitUntilLive(stop.signal);
        }
      } catch (error) {
        if (!isAbortError(error)) addLine(/** @type {Error} */ (error).message, true);
      } finally {
        isRunning.value = false;
        status.value = `${formatNumber(totals.settled)} settled here, ${formatNumber(totals.failed)} of them failed. ${stop.signal.aborted ? "Stopped: finished rows are kept, the others were requeued." : ""}`;
      }
    }

    /** @returns {Promise<boolean>} whether there is more to do */
    async function runSlice() {
      status.value = "Working …";
      let slice;
      try {
        slice = await api.post(`/v1/jobs/${job.id}/kickoff`, undefined, { query: { duration_ms: SLICE_MS }, signal: stop.signal });
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 503) throw error;
        status.value = `${error.message} – retrying`;
        await delay(RETRY_DELAY_S);
        return true;
      }
      totals.settled += slice.settled;
      totals.failed += slice.failed;
      addLine(`${formatNumber(slice.settled)} settled${slice.failed ? `, ${formatNumber(slice.failed)} failed` : ""}${slice.retried ? `, ${formatNumber(slice.retried)} to be retried` : ""}, in ${slice.seconds.toFixed(1)} s${slice.child_died ? "; an item crashed its process" : ""}`, slice.child_died);
      if (slice.is_drained) {
        addLine("No open rows are left in this job.");
        return false;
      }
      if (slice.settled > 0) return true;
      const wait = slice.due_in === null || slice.due_in === undefined ? RETRY_DELAY_S : slice.due_in;
      if (wait > MAX_WAIT_S) {
        addLine(`Nothing to do now: the next row is due in ${formatDuration(wait)}.`);
        return false;
      }
      status.value = wait > 0 && slice.due_in ? `The next row is due in ${formatDuration(wait)} …` : "Workers are processing the remaining rows …";
      await delay(Math.max(wait, 0.5));
      return true;
    }

    /** @param {number} seconds @returns {Promise<void>} */
    function delay(seconds) {
      return new Promise((resolve) => {
        const timer = window.setTimeout(resolve, seconds * 1000);
        stop.signal.addEventListener("abort", () => (window.clearTimeout(timer), resolve()), { once: true });
      });
    }

    run();
    return [
      h("p", { class: "muted" }, `The service processes this job in slices of ${SLICE_MS / 1000} seconds, with or without workers. Closing this dialog stops further slices.`),
      h("ol", { class: "slices", "aria-label": "Slices", tabindex: "0" }, () => lines.value.map((line) => h("li", { class: line.isBad ? "fault" : null }, h("span", { class: "muted number" }, `${line.n}.`), " ", line.text))),
      h("p", { role: "status" }, status),
      h("div", { class: "acts" }, () => (isRunning.value ? h("button", { type: "button", class: "danger", on: { click: () => stop.abort() } }, icon("ban"), "Stop") : h("button", { type: "button", on: { click: run } }, icon("play"), "Continue")), h("button", { type: "button", on: { click: () => close(null) } }, "Close")),
    ];
  });
  done?.();
}
