// @ts-check
/** How quick jobs are, from what the stream tells of them: lists carry no rates of their own. */

const WINDOW_MS = 30_000;
const LEAST_MS = 2_000;

/** @param {any} counts */
export function settled(counts) {
  return counts.done + counts.not_found + counts.skipped + counts.failed + counts.cancelled;
}

export class Pace {
  constructor() {
    /** @type {Map<string, Array<{at: number, settled: number}>>} */
    this._seen = new Map();
  }

  /** @param {any} job @param {number} at */
  note(job, at) {
    if (job.closed_at) return void this._seen.delete(job.id);
    const seen = this._seen.get(job.id) ?? [];
    const done = settled(job.counts);
    const last = seen.at(-1);
    if (last !== undefined && done < last.settled) seen.length = 0; // sent round again
    seen.push({ at, settled: done });
    while (seen.length > 2 && seen[1].at < at - WINDOW_MS) seen.shift();
    this._seen.set(job.id, seen);
  }

  /** Items a second, now; null while nobody can say. @param {any} job @param {number} at @returns {number | null} */
  perSecond(job, at) {
    const seen = this._seen.get(job.id) ?? [];
    const [first, last] = [seen[0], seen.at(-1)];
    if (first === undefined || last === undefined || last.at - first.at < LEAST_MS) return null;
    if (at - last.at > WINDOW_MS) return 0;
    return ((last.settled - first.settled) * 1000) / (Math.max(at, last.at) - first.at);
  }

  /** Seconds until it is done at this pace; null while nobody can say. @param {any} job @param {number} at */
  left(job, at) {
    const speed = this.perSecond(job, at);
    const open = job.counts.pending + job.counts.processing + job.counts.retry_wait;
    return speed && job.ingest_complete && job.status === "running" ? open / speed : null;
  }
}
