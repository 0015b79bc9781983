// @ts-check
/** Jobs that are not closed, kept current by live updates, and the sums of their open items. */
import { api, currentUser } from "./api.js";
import { onJobUpdates, ownerScope } from "./live-updates.js";
import { remoteData } from "./remote-data.js";
import { batch, effect, signal } from "./signal.js";

const OPEN_STATUSES = ["pending", "ingesting", "running", "paused", "cancelling"];
const MAX_JOBS = 500;

/** @typedef {{pending: number, processing: number, retry_wait: number}} OpenCounts */

export function trackOpenJobs() {
  const jobs = signal(/** @type {Map<string, any>} */ (new Map()));
  /** False if there are more open jobs than were loaded; the sums are minimums then. */
  const isComplete = signal(true);
  const firstPage = remoteData((signal) => api.get("/v1/jobs", { statuses: OPEN_STATUSES, user_id: ownerScope.value, page_size: MAX_JOBS }, signal));
  effect(() => {
    const page = firstPage.data.value;
    if (page === null) return;
    batch(() => {
      jobs.value = new Map(page.jobs.map((/** @type {any} */ job) => [job.id, job]));
      isComplete.value = !page.next_page;
    });
  });
  onJobUpdates((changed) => {
    const now = new Map(jobs.peek());
    for (const job of changed) {
      const isOurs = ownerScope.peek() === "all" || job.user_id === currentUser.peek()?.user_id;
      if (isOurs && OPEN_STATUSES.includes(job.status)) now.set(job.id, job);
      else now.delete(job.id);
    }
    jobs.value = now;
  }, firstPage);

  /** Sums the open items of the included jobs. @param {(job: any) => boolean} isIncluded @returns {OpenCounts} */
  function sumCounts(isIncluded) {
    const found = { pending: 0, processing: 0, retry_wait: 0 };
    for (const job of jobs.value.values()) {
      if (!isIncluded(job)) continue;
      found.pending += job.counts.pending;
      found.processing += job.counts.processing;
      found.retry_wait += job.counts.retry_wait;
    }
    return found;
  }

  const kinds = () => [...new Set([...jobs.value.values()].map((job) => job.kind))].toSorted().map((value) => ({ value, label: value }));
  return { jobs, isComplete, sumCounts, kinds, firstPage };
}
