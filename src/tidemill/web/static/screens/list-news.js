// @ts-check
/** What a list of jobs, the newest first, does not show yet, and what it shows though it matches no more. */
import { me } from "../core/api.js";
import { count } from "../core/format.js";
import { computed, signal } from "../core/signal.js";
import { scope } from "../core/sse.js";

/** @typedef {import("../core/signal.js").Signal<string>} Word */

/**
 * @param {object} list
 * @param {import("../core/load.js").Loaded<any>} list.first its first page
 * @param {import("../core/signal.js").Signal<any[]>} list.shown
 * @param {import("../core/signal.js").Signal<string | null>} list.next null when all of it is shown
 * @param {import("../core/signal.js").Signal<string[]>} list.statuses
 * @param {() => {q: string, kind?: string, created_from: string | null, created_to: string | null}} list.asked what else it is asked for
 */
export function listNews({ first, shown, next, statuses, asked }) {
  const fresh = signal(/** @type {Set<string>} */ (new Set()));
  const isOf = (/** @type {string} */ status) => statuses.value.length === 0 || statuses.value.includes(status);
  // Nothing else of a job that is asked for ever changes. Of another filter's rows nothing is said: the right ones are on their way.
  const gone = computed(() => (first.isLoading.value ? 0 : shown.value.filter((one) => !isOf(one.status)).length));

  /** Jobs that are not shown have changed. @param {any[]} jobs */
  function hear(jobs) {
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
    if (first.data.peek() === null || (next.peek() !== null && oldest && Date.parse(job.created_at) < Date.parse(oldest.created_at))) return false;
    return (scope.peek() === "all" || job.user_id === me.peek()?.user_id) && isOf(job.status) && matches(job, asked());
  }

  const says = () => {
    const parts = [];
    if (fresh.value.size) parts.push(`${count(fresh.value.size)} new`);
    if (gone.value) parts.push(`${count(gone.value)} no longer ${gone.value === 1 ? "matches" : "match"}`);
    return parts.length ? `${parts.join(", ")} – show` : "";
  };
  return { hear, says, forget: () => (fresh.value = new Set()) };
}

/** @param {any} job @param {{q: string, kind?: string, created_from: string | null, created_to: string | null}} asked */
function matches(job, { q, kind, created_from, created_to }) {
  const at = Date.parse(job.created_at);
  const begins = (/** @type {string} */ name) => name.toLowerCase().startsWith(q.trim().toLowerCase());
  return (!kind || job.kind === kind) && (begins(job.key) || begins(job.id)) && (!created_from || at >= Date.parse(created_from)) && (!created_to || at < Date.parse(created_to));
}
