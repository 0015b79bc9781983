// @ts-check
/** Jobs that are not closed, kept up to date by the stream: what waits in all of them together. */
import { api, me } from "./api.js";
import { load } from "./load.js";
import { batch, effect, signal } from "./signal.js";
import { onJobs, scope } from "./sse.js";

const OPEN = ["pending", "ingesting", "running", "paused", "cancelling"];
const MOST = 500;

/** @typedef {{pending: number, processing: number, retry_wait: number}} Open */

export function openJobs() {
  const jobs = signal(/** @type {Map<string, any>} */ (new Map()));
  /** False when there are more open jobs than are looked at: sums are "at least" then. */
  const isComplete = signal(true);
  const first = load((signal) => api.get("/v1/jobs", { statuses: OPEN, user_id: scope.value, page_size: MOST }, signal));
  effect(() => {
    const page = first.data.value;
    if (page === null) return;
    batch(() => {
      jobs.value = new Map(page.jobs.map((/** @type {any} */ job) => [job.id, job]));
      isComplete.value = !page.next_page;
    });
  });
  onJobs((changed) => {
    const now = new Map(jobs.peek());
    for (const job of changed) {
      const isOurs = scope.peek() === "all" || job.user_id === me.peek()?.user_id;
      if (isOurs && OPEN.includes(job.status)) now.set(job.id, job);
      else now.delete(job.id);
    }
    jobs.value = now;
  }, first);

  /** Open items of those jobs that fit. @param {(job: any) => boolean} fits @returns {Open} */
  function sum(fits) {
    const found = { pending: 0, processing: 0, retry_wait: 0 };
    for (const job of jobs.value.values()) {
      if (!fits(job)) continue;
      found.pending += job.counts.pending;
      found.processing += job.counts.processing;
      found.retry_wait += job.counts.retry_wait;
    }
    return found;
  }

  const kinds = () => [...new Set([...jobs.value.values()].map((job) => job.kind))].sort().map((value) => ({ value, said: value }));
  return { jobs, isComplete, sum, kinds, first };
}
