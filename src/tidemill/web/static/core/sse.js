// @ts-check
/**
 * News of jobs: one stream for the whole tab. None while the tab is hidden or paused, and then no requests either.
 */
import { ApiError, me, now, send, whoAmI } from "./api.js";
import { parse } from "./json.js";
import { batch, computed, effect, onCleanup, signal, untracked } from "./signal.js";

/** @typedef {"connecting" | "live" | "lost" | "paused" | "hidden" | "off"} LiveState */

const LONGEST_WAIT_S = 30;
const SILENCE_MS = 40_000; // a quiet stream sends a comment every 15 s: this is no quiet stream
const KEPT = 1_000; // jobs whose newest news are kept

/** Whether somebody pressed Pause. */
export const isPaused = signal(false);
const isHidden = signal(document.visibilityState === "hidden");
/** Whether anything may be asked for without a person wanting it this moment. */
export const isLive = computed(() => !isPaused.value && !isHidden.value);
/** @type {import("./signal.js").Signal<LiveState>} */
export const liveState = signal(/** @type {LiveState} */ ("off"));
/** When what is shown was last known to be so, in the server's time. */
export const freshAt = signal(0);
/** When the next try to connect is. */
export const retryAt = signal(0);
/** Whose jobs are told of: `me`, or `all` for admins. */
export const scope = signal("me");
/** The id of a job that is looked at: told of in any case, also when it is somebody else's, or too many others are open. */
const looked = signal("");

/** @type {Set<(jobs: any[]) => void>} */
const listeners = new Set();
/** @type {Map<string, any>} */
let news = new Map();
let isTold = false;
let lastId = "";
/** When the page was loaded, by our own clock: nothing that is shown is older. */
const began = Date.now();
/** The last of each job, with its number: how many were told of before. @type {Map<string, {job: any, n: number}>} */
const newest = new Map();
let told = 0;

/**
 * Hear of jobs that change, a few at a time, as long as the scope around this lasts.
 *
 * With an answer that shows jobs, also, when it comes, of what was told while it was on its way: that is newer.
 * @param {(jobs: any[]) => void} listener
 * @param {{since: import("./signal.js").Signal<{n: number} | null>}} [answer]
 */
export function onJobs(listener, answer) {
  listeners.add(listener);
  onCleanup(() => listeners.delete(listener));
  if (answer === undefined) return;
  effect(() => {
    const since = answer.since.value;
    const missed = since === null ? [] : [...newest.values()].filter((one) => one.n >= since.n).map((one) => one.job);
    if (missed.length) untracked(() => listener(missed));
  });
}

/** How many news were told so far: what an answer that is asked for now cannot know. */
export function toldSoFar() {
  return { n: told };
}

/** Be told of this job in any case, for as long as the scope around this lasts; null for none. @param {() => string | null} id */
export function lookAt(id) {
  effect(() => {
    looked.value = id() ?? "";
  });
  onCleanup(() => (looked.value = ""));
}

/** @param {any} job */
function offer(job) {
  news.set(job.id, job);
  newest.delete(job.id);
  newest.set(job.id, { job, n: told });
  told += 1;
  if (newest.size > KEPT) newest.delete(/** @type {string} */ (newest.keys().next().value));
  if (isTold) return;
  isTold = true;
  window.setTimeout(tell, 100);
}

function tell() {
  isTold = false;
  const jobs = [...news.values()];
  news = new Map();
  batch(() => listeners.forEach((listener) => listener(jobs)));
}

/** Keep a stream open for as long as somebody is signed in and looks. */
export function startLive() {
  document.addEventListener("visibilitychange", () => {
    isHidden.value = document.visibilityState === "hidden";
  });
  effect(() => {
    const user = me.value;
    const asked = { user_id: scope.value, job: looked.value };
    const state = user === null ? "off" : isPaused.value ? "paused" : isHidden.value ? "hidden" : "connecting";
    // Another question to a stream that is open is no loss, and is not shown as one.
    if (state !== "connecting" || liveState.peek() !== "live") liveState.value = state;
    if (state !== "connecting") return;
    const stop = new AbortController();
    onCleanup(() => stop.abort());
    keepOpen(asked, stop.signal);
  });
}

/** @param {Record<string, string>} asked @param {AbortSignal} stop */
async function keepOpen(asked, stop) {
  for (let tries = 0; !stop.aborted; tries += 1) {
    const openedAt = Date.now();
    try {
      await listenTo(asked, stop);
    } catch (error) {
      // Not every abort is ours: one that fell silent is broken off too, and opened again.
      if (stop.aborted) return;
      if (error instanceof ApiError && error.status === 401) {
        liveState.value = "off";
        return;
      }
    }
    if (stop.aborted) return;
    if (Date.now() - openedAt > 10_000) tries = 0;
    const wait = Math.min(LONGEST_WAIT_S, 2 ** tries);
    batch(() => {
      liveState.value = "lost";
      retryAt.value = now() + wait * 1000;
    });
    await pause(wait * 1000, stop);
    if (stop.aborted) return;
    // A stream also ends when its session does: that is worth a question, which says so to everybody.
    await whoAmI().catch(() => null);
  }
}

/** @param {number} ms @param {AbortSignal} stop @returns {Promise<void>} */
function pause(ms, stop) {
  return new Promise((resolve) => {
    const timer = window.setTimeout(resolve, ms);
    stop.addEventListener("abort", () => (window.clearTimeout(timer), resolve()), { once: true });
  });
}

/** Where this stream goes on. Who has heard nothing yet has heard of everything up to when it was last open. */
function resumeAt() {
  return lastId || new Date(freshAt.peek() || began + now() - Date.now()).toISOString();
}

/** @param {Record<string, string>} asked @param {AbortSignal} stop */
async function listenTo(asked, stop) {
  const broken = new AbortController();
  const end = () => broken.abort();
  stop.addEventListener("abort", end, { once: true });
  /** @type {Record<string, string>} */
  const headers = { accept: "text/event-stream", "last-event-id": resumeAt() };
  let timer = window.setTimeout(end, SILENCE_MS);
  try {
    const response = await send("GET", "/v1/events", { query: asked, headers, signal: broken.signal });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      window.clearTimeout(timer);
      timer = window.setTimeout(end, SILENCE_MS);
      batch(() => {
        liveState.value = "live";
        freshAt.value = now();
      });
      const parts = (rest + value).split(/\r?\n\r?\n/);
      rest = parts.pop() ?? "";
      parts.forEach(hear);
    }
  } finally {
    window.clearTimeout(timer);
    stop.removeEventListener("abort", end);
    broken.abort();
  }
}

/** @param {string} block one event, or a comment */
function hear(block) {
  /** @type {Record<string, string>} */
  const fields = {};
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = (fields[line.slice(0, colon)] ?? "") + line.slice(colon + 1).replace(/^ /, "");
  }
  if (fields.id) lastId = fields.id;
  if (fields.event === "job" && fields.data) offer(parse(fields.data));
}
