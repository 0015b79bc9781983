// @ts-check
/** Measures the throughput of jobs from live updates, as lists contain no rates. */

const WINDOW_MS = 30_000;
const MIN_SPAN_MS = 2_000;
/** Without progress for this long there is no estimate: the worker may have stopped. */
const STALL_MS = 10_000;

/** @param {any} counts */
export function countSettled(counts) {
  return counts.done + counts.not_found + counts.skipped + counts.failed + counts.cancelled;
}

export class ThroughputTracker {
  constructor() {
    /** @type {Map<string, Array<{at: number, settled: number}>>} */
    this._samples = new Map();
  }

  /** @param {any} job @param {number} at */
  record(job, at) {
    if (job.closed_at) return void this._samples.delete(job.id);
    const samples = this._samples.get(job.id) ?? [];
    const settled = countSettled(job.counts);
    const last = samples.at(-1);
    if (last !== undefined && settled < last.settled) samples.length = 0; // items were requeued
    samples.push({ at, settled });
    while (samples.length > 2 && samples[1].at < at - WINDOW_MS) samples.shift();
    this._samples.set(job.id, samples);
  }

  /** The current rate; null if there are too few samples. @param {any} job @param {number} at @returns {number | null} */
  itemsPerSecond(job, at) {
    const samples = this._samples.get(job.id) ?? [];
    const [first, last] = [samples[0], samples.at(-1)];
    if (first === undefined || last === undefined || last.at - first.at < MIN_SPAN_MS) return null;
    if (at - last.at > WINDOW_MS) return 0;
    return ((last.settled - first.settled) * 1000) / (Math.max(at, last.at) - first.at);
  }

  /** The estimated time left in seconds; null if there is no estimate. @param {any} job @param {number} at */
  secondsLeft(job, at) {
    const speed = this.itemsPerSecond(job, at);
    const samples = this._samples.get(job.id) ?? [];
    const moved = samples.find((one) => one.settled === samples.at(-1)?.settled);
    if (moved === undefined || at - moved.at > STALL_MS) return null;
    const open = job.counts.pending + job.counts.processing + job.counts.retry_wait;
    return speed && job.ingest_complete && job.status === "running" ? open / speed : null;
  }
}
