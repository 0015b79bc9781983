// @ts-check
/**
 * Live updates of jobs: one event stream for each tab. A hidden or paused tab closes it and sends no requests.
 */
import { ApiError, currentUser, fetchCurrentUser, sendRequest, serverNow } from "./api.js";
import { parse } from "./json.js";
import { batch, computed, effect, onCleanup, signal, untracked } from "./signal.js";

/** @typedef {"connecting" | "live" | "lost" | "paused" | "hidden" | "off"} LiveState */

const MAX_RECONNECT_DELAY_S = 30;
const SILENCE_TIMEOUT_MS = 40_000; // the service sends a comment every 15 s, so a silent stream is broken
const MAX_RECENT_JOBS = 1_000; // number of jobs whose latest update is kept

/** True while the user has paused live updates. */
export const areUpdatesPaused = signal(false);
const isHidden = signal(document.visibilityState === "hidden");
/** True if the page may send requests that the user did not trigger. */
export const isLive = computed(() => !areUpdatesPaused.value && !isHidden.value);
/** @type {import("./signal.js").Signal<LiveState>} */
export const liveState = signal(/** @type {LiveState} */ ("off"));
/** When the shown data was last known to be current, by the server's clock. */
export const lastUpdateAt = signal(0);
/** When the next connection attempt is. */
export const reconnectAt = signal(0);
/** Whose jobs to show: `me`, or `all` for admins. */
export const ownerScope = signal("me");
/** The id of a job that the stream has to include, even if it belongs to another user or too many jobs are open. */
const watchedJobId = signal("");

/** @type {Set<(jobs: any[]) => void>} */
const listeners = new Set();
/** @type {Map<string, any>} */
let queuedJobs = new Map();
let isFlushScheduled = false;
let lastId = "";
/** When the page was loaded, by the browser's clock. No data is older. */
const pageLoadedAt = Date.now();
/** The latest update of each job, with its sequence number. @type {Map<string, {job: any, n: number}>} */
const recentJobs = new Map();
let updateCount = 0;

/**
 * Calls the listener with updated jobs, in batches, until the surrounding scope ends.
 *
 * With a `source`, also replays the updates that arrived while that source was loading, as they are newer than its data.
 * @param {(jobs: any[]) => void} listener
 * @param {{updateCursor: import("./signal.js").Signal<{n: number} | null>}} [source]
 */
export function onJobUpdates(listener, source) {
  listeners.add(listener);
  onCleanup(() => listeners.delete(listener));
  if (source === undefined) return;
  effect(() => {
    const cursor = source.updateCursor.value;
    const missed = cursor === null ? [] : [...recentJobs.values()].filter((one) => one.n >= cursor.n).map((one) => one.job);
    if (missed.length) untracked(() => listener(missed));
  });
}

/** Marks the current position in the stream. A request that starts now may miss updates from here on. */
export function currentUpdateCursor() {
  return { n: updateCount };
}

/** Includes a job in the stream until the surrounding scope ends; null for none. @param {() => string | null} id */
export function watchJob(id) {
  effect(() => {
    watchedJobId.value = id() ?? "";
  });
  onCleanup(() => (watchedJobId.value = ""));
}

/** @param {any} job */
function queueUpdate(job) {
  queuedJobs.set(job.id, job);
  recentJobs.delete(job.id);
  recentJobs.set(job.id, { job, n: updateCount });
  updateCount += 1;
  if (recentJobs.size > MAX_RECENT_JOBS) recentJobs.delete(/** @type {string} */ (recentJobs.keys().next().value));
  if (isFlushScheduled) return;
  isFlushScheduled = true;
  window.setTimeout(flushUpdates, 100);
}

function flushUpdates() {
  isFlushScheduled = false;
  const jobs = [...queuedJobs.values()];
  queuedJobs = new Map();
  batch(() => listeners.forEach((listener) => listener(jobs)));
}

/** Keeps the stream open while a user is signed in and the tab is visible. */
export function startLiveUpdates() {
  document.addEventListener("visibilitychange", () => {
    isHidden.value = document.visibilityState === "hidden";
  });
  effect(() => {
    const user = currentUser.value;
    const params = { user_id: ownerScope.value, job: watchedJobId.value };
    const state = user === null ? "off" : areUpdatesPaused.value ? "paused" : isHidden.value ? "hidden" : "connecting";
    // Reconnecting with other parameters is not a lost connection.
    if (state !== "connecting" || liveState.peek() !== "live") liveState.value = state;
    if (state !== "connecting") return;
    const stop = new AbortController();
    onCleanup(() => stop.abort());
    keepStreamOpen(params, stop.signal);
  });
}

/** @param {Record<string, string>} params @param {AbortSignal} stop */
async function keepStreamOpen(params, stop) {
  for (let tries = 0; !stop.aborted; tries += 1) {
    const openedAt = Date.now();
    try {
      await readStream(params, stop);
    } catch (error) {
      // The silence timeout aborts the connection too, and then it has to be reopened.
      if (stop.aborted) return;
      if (error instanceof ApiError && error.status === 401) {
        liveState.value = "off";
        return;
      }
    }
    if (stop.aborted) return;
    if (Date.now() - openedAt > 10_000) tries = 0;
    const wait = Math.min(MAX_RECONNECT_DELAY_S, 2 ** tries);
    batch(() => {
      liveState.value = "lost";
      reconnectAt.value = serverNow() + wait * 1000;
    });
    await delay(wait * 1000, stop);
    if (stop.aborted) return;
    // The stream also ends with its session. This request detects that.
    await fetchCurrentUser().catch(() => null);
  }
}

/** @param {number} ms @param {AbortSignal} stop @returns {Promise<void>} */
function delay(ms, stop) {
  return new Promise((resolve) => {
    const timer = window.setTimeout(resolve, ms);
    stop.addEventListener("abort", () => (window.clearTimeout(timer), resolve()), { once: true });
  });
}

/** The event id to resume from. Without one, the time when the stream was last open. */
function resumeId() {
  return lastId || new Date(lastUpdateAt.peek() || pageLoadedAt + serverNow() - Date.now()).toISOString();
}

/** @param {Record<string, string>} params @param {AbortSignal} stop */
async function readStream(params, stop) {
  const connection = new AbortController();
  const end = () => connection.abort();
  stop.addEventListener("abort", end, { once: true });
  /** @type {Record<string, string>} */
  const headers = { accept: "text/event-stream", "last-event-id": resumeId() };
  let timer = window.setTimeout(end, SILENCE_TIMEOUT_MS);
  try {
    const response = await sendRequest("GET", "/v1/events", { query: params, headers, signal: connection.signal });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      window.clearTimeout(timer);
      timer = window.setTimeout(end, SILENCE_TIMEOUT_MS);
      batch(() => {
        liveState.value = "live";
        lastUpdateAt.value = serverNow();
      });
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop() ?? "";
      parts.forEach(handleEvent);
    }
  } finally {
    window.clearTimeout(timer);
    stop.removeEventListener("abort", end);
    connection.abort();
  }
}

/** @param {string} block one event, or a comment */
function handleEvent(block) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = (fields[line.slice(0, colon)] ?? "") + line.slice(colon + 1).replace(/^ /, "");
  }
  if (fields.id) lastId = fields.id;
  if (fields.event === "job" && fields.data) queueUpdate(parse(fields.data));
}
