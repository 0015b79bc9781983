// @ts-check
/** "Process now": slice after slice of work on one job, in this service, for as long as somebody wants. */
import { ApiError, api, isAbort } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, duration } from "../core/format.js";
import { untilLive } from "../core/load.js";
import { onCleanup, signal } from "../core/signal.js";
import { isPaused } from "../core/sse.js";
import { showDialog } from "../ui/dialog.js";
import { icon } from "../ui/icons.js";

const SLICE_MS = 5_000;
const LONGEST_WAIT_S = 15;
const BUSY_S = 2;

/** @typedef {{n: number, says: string, isBad?: boolean}} Line */

/** @param {any} job @param {() => void} [done] when the dialog is closed */
export async function processNow(job, done) {
  await showDialog(`Process ${job.key} now`, (close) => {
    const lines = signal(/** @type {Line[]} */ ([]));
    const says = signal("");
    const isRunning = signal(false);
    const totals = { settled: 0, failed: 0 };
    let stop = new AbortController();
    onCleanup(() => stop.abort());

    const tell = (/** @type {string} */ text, isBad = false) => lines.update((now) => [...now.slice(-49), { n: (now.at(-1)?.n ?? 0) + 1, says: text, isBad }]);

    async function run() {
      stop = new AbortController();
      isRunning.value = true;
      try {
        while (!stop.signal.aborted && (await one())) {
          if (isPaused.peek()) return void tell("Live updates are paused: every press of Go on is one slice.");
          await untilLive(stop.signal);
        }
      } catch (error) {
        if (!isAbort(error)) tell(/** @type {Error} */ (error).message, true);
      } finally {
        isRunning.value = false;
        says.value = `${count(totals.settled)} settled here, ${count(totals.failed)} of them failed. ${stop.signal.aborted ? "Stopped: what was finished is kept, the rest went back." : ""}`;
      }
    }

    /** @returns {Promise<boolean>} whether there is more to do */
    async function one() {
      says.value = "Working …";
      let slice;
      try {
        slice = await api.post(`/v1/jobs/${job.id}/kickoff`, undefined, { query: { duration_ms: SLICE_MS }, signal: stop.signal });
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 503) throw error;
        says.value = `${error.message}. Trying again.`;
        await rest(BUSY_S);
        return true;
      }
      totals.settled += slice.settled;
      totals.failed += slice.failed;
      tell(`${count(slice.settled)} settled${slice.failed ? `, ${count(slice.failed)} failed` : ""}${slice.retried ? `, ${count(slice.retried)} to be tried again` : ""}, in ${slice.seconds.toFixed(1)} s${slice.child_died ? "; a process died of an item" : ""}`, slice.child_died);
      if (slice.is_drained) {
        tell("Nothing of this job is open any more.");
        return false;
      }
      if (slice.settled > 0) return true;
      const wait = slice.due_in === null || slice.due_in === undefined ? BUSY_S : slice.due_in;
      if (wait > LONGEST_WAIT_S) {
        tell(`The next row is due in ${duration(wait)}: nothing to do until then.`);
        return false;
      }
      says.value = wait > 0 && slice.due_in ? `The next row is due in ${duration(wait)} …` : "Workers have the rest in hand …";
      await rest(Math.max(wait, 0.5));
      return true;
    }

    /** @param {number} seconds @returns {Promise<void>} */
    function rest(seconds) {
      return new Promise((resolve) => {
        const timer = window.setTimeout(resolve, seconds * 1000);
        stop.signal.addEventListener("abort", () => (window.clearTimeout(timer), resolve()), { once: true });
      });
    }

    run();
    return [
      h("p", { class: "muted" }, `The service works on this job itself, ${SLICE_MS / 1000} seconds at a time, with workers beside it or without. Closing this stops it.`),
      h("ol", { class: "slices", "aria-label": "Slices", tabindex: "0" }, () => lines.value.map((line) => h("li", { class: line.isBad ? "fault" : null }, h("span", { class: "muted number" }, `${line.n}.`), " ", line.says))),
      h("p", { role: "status" }, says),
      h("div", { class: "acts" }, () => (isRunning.value ? h("button", { type: "button", class: "danger", on: { click: () => stop.abort() } }, icon("ban"), "Stop") : h("button", { type: "button", on: { click: run } }, icon("play"), "Go on")), h("button", { type: "button", on: { click: () => close(null) } }, "Close")),
    ];
  });
  done?.();
}
