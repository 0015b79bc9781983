// @ts-check
/** Tracks what changed in a list of jobs: new entries, and shown entries that no longer match. */
import { currentUser } from "../core/api.js";
import { formatNumber } from "../core/format.js";
import { ownerScope } from "../core/live-updates.js";
import { computed, signal } from "../core/signal.js";

/** @typedef {import("../core/signal.js").Signal<string>} Word */

/**
 * @param {object} list
 * @param {import("../core/remote-data.js").RemoteData<any>} list.firstPage its first page
 * @param {import("../core/signal.js").Signal<any[]>} list.shown
 * @param {import("../core/signal.js").Signal<string | null>} list.next null if there are no more pages
 * @param {import("../core/signal.js").Signal<string[]>} list.statuses
 * @param {() => {search: string, kind?: string, created_from: string | null, created_to: string | null}} list.requestParams the other filters of the list
 */
export function trackListUpdates({ firstPage, shown, next, statuses, requestParams }) {
  const fresh = signal(/** @type {Set<string>} */ (new Set()));
  const isOf = (/** @type {string} */ status) => statuses.value.length === 0 || statuses.value.includes(status);
  // Only the status of a job can change. While another filter is loading, nothing is reported.
  const noLongerMatching = computed(() => (firstPage.isLoading.value ? 0 : shown.value.filter((one) => !isOf(one.status)).length));

  /** Records updates of jobs that are not in the list. @param {any[]} jobs */
  function recordJobs(jobs) {
    const now = new Set(fresh.peek());
    for (const job of jobs) {
      if (wouldBeShown(job)) now.add(job.id);
      else now.delete(job.id);
    }
    fresh.value = now;
  }

  /** @param {any} job */
  function wouldBeShown(job) {
    const oldest = shown.peek().at(-1);
    if (firstPage.data.peek() === null || (next.peek() !== null && oldest && Date.parse(job.created_at) < Date.parse(oldest.created_at))) return false;
    return (ownerScope.peek() === "all" || job.user_id === currentUser.peek()?.user_id) && isOf(job.status) && matches(job, requestParams());
  }

  const pillText = () => {
    const parts = [];
    if (fresh.value.size) parts.push(`${formatNumber(fresh.value.size)} new`);
    if (noLongerMatching.value) parts.push(`${formatNumber(noLongerMatching.value)} no longer ${noLongerMatching.value === 1 ? "matches" : "match"}`);
    return parts.length ? `${parts.join(", ")} – show` : "";
  };
  return { recordJobs, pillText, forget: () => (fresh.value = new Set()) };
}

/** @param {any} job @param {{search: string, kind?: string, created_from: string | null, created_to: string | null}} options */
function matches(job, { search, kind, created_from, created_to }) {
  const at = Date.parse(job.created_at);
  const text = search.trim().toLowerCase();
  const isFound = job.id === text || [job.key, job.file_name, job.target].some((one) => (one ?? "").toLowerCase().includes(text));
  return (!kind || job.kind === kind) && isFound && (!created_from || at >= Date.parse(created_from)) && (!created_to || at < Date.parse(created_to));
}
