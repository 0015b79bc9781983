// @ts-check
/**
 * News of jobs: one stream for the whole tab. None while the tab is hidden or paused, and then no requests either.
 */
import { ApiError, isAbort, me, now, send, whoAmI } from "./api.js";
import { parse } from "./json.js";
import { batch, computed, effect, onCleanup, signal } from "./signal.js";

/** @typedef {"connecting" | "live" | "lost" | "paused" | "hidden" | "off"} LiveState */

const LONGEST_WAIT_S = 30;
const SILENCE_MS = 40_000; // a quiet stream sends a comment every 15 s: this is no quiet stream

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
/** More than the scope asks for: a job of somebody else is looked at. */
export const wantsAll = signal(false);

/** @type {Set<(jobs: any[]) => void>} */
const listeners = new Set();
/** @type {Map<string, any>} */
let news = new Map();
let isTold = false;
let lastId = "";

/** Hear of jobs that change, a few at a time, as long as the scope around this lasts. @param {(jobs: any[]) => void} listener */
export function onJobs(listener) {
  listeners.add(listener);
  onCleanup(() => listeners.delete(listener));
}

/** @param {any} job */
function offer(job) {
  news.set(job.id, job);
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
    const whose = wantsAll.value || scope.value === "all" ? "all" : "me";
    const state = user === null ? "off" : isPaused.value ? "paused" : isHidden.value ? "hidden" : "connecting";
    liveState.value = state;
    if (state !== "connecting") return;
    const stop = new AbortController();
    onCleanup(() => stop.abort());
    keepOpen(whose, stop.signal);
  });
}

/** @param {string} whose @param {AbortSignal} stop */
async function keepOpen(whose, stop) {
  for (let tries = 0; !stop.aborted; tries += 1) {
    const began = Date.now();
    try {
      await listenTo(whose, stop);
    } catch (error) {
      if (stop.aborted || isAbort(error)) return;
      if (error instanceof ApiError && error.status === 401) {
        liveState.value = "off";
        return;
      }
    }
    if (stop.aborted) return;
    if (Date.now() - began > 10_000) tries = 0;
    const wait = Math.min(LONGEST_WAIT_S, 2 ** tries);
    batch(() => {
      liveState.value = "lost";
      retryAt.value = now() + wait * 1000;
    });
    await pause(wait * 1000, stop);
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

/** @param {string} whose @param {AbortSignal} stop */
async function listenTo(whose, stop) {
  const broken = new AbortController();
  const end = () => broken.abort();
  stop.addEventListener("abort", end, { once: true });
  /** @type {Record<string, string>} */
  const headers = { accept: "text/event-stream" };
  if (lastId) headers["last-event-id"] = lastId;
  let timer = window.setTimeout(end, SILENCE_MS);
  try {
    const response = await send("GET", "/v1/events", { query: { user_id: whose }, headers, signal: broken.signal });
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
