// @ts-check
/**
 * Requests. An answer that is not good is an ApiError, made of the problem document that came.
 */
import { parse, parseExactly, stringify } from "./json.js";
import { address } from "./place.js";
import { signal } from "./signal.js";

/** @typedef {{user_id: number, name: string, role: "user" | "admin", by: string, csrf_token: string | null}} Me */
/** @typedef {{query?: Record<string, any>, body?: any, raw?: string, headers?: Record<string, string>, signal?: AbortSignal, isExact?: boolean}} Asked */

/** Who is signed in; null before that is known. @type {import("./signal.js").Signal<Me | null>} */
export const me = signal(/** @type {Me | null} */ (null));
/** Somebody was signed in here, and is not any more. */
export const isSignedOut = signal(false);
/** Counts up when somebody signs in again: whatever failed meanwhile is asked for again. */
export const signIns = signal(0);

/** Counts who came: what was refused to the one before says nothing of who is there now. */
let arrivals = 0;

/** Somebody asks for something; to be called if they are refused because nobody is signed in. */
export function asking() {
  const asked = arrivals;
  return () => {
    if (me.peek() !== null && arrivals === asked) isSignedOut.value = true;
  };
}

/** How far the server's clock is ahead of ours, in milliseconds. */
let ahead = 0;

export class ApiError extends Error {
  /** @param {number} status @param {any} problem */
  constructor(status, problem) {
    super(problem?.detail || problem?.title || (status ? `the service answered ${status}` : "the service cannot be reached"));
    this.name = "ApiError";
    this.status = status;
    this.requestId = problem?.request_id ?? null;
    /** @type {Array<{pointer?: string, parameter?: string, detail: string}>} */
    this.faults = problem?.errors ?? [];
  }
}

/** What the server's clock says. */
export function now() {
  return Date.now() + ahead;
}

/** @param {unknown} error */
export function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Whether there is no such thing, or not for who asks. @param {unknown} error */
export function isMissing(error) {
  return error instanceof ApiError && error.status === 404;
}

/**
 * @param {string} method
 * @param {string} path as in `/v1/jobs`
 * @param {Asked} [asked] `raw` is a body that is JSON already
 * @returns {Promise<Response>}
 */
export async function send(method, path, asked = {}) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json", ...asked.headers };
  let body;
  if (asked.raw !== undefined || asked.body !== undefined) {
    const isFile = asked.body instanceof Blob || asked.body instanceof FormData;
    body = asked.raw ?? (isFile ? asked.body : stringify(asked.body));
    if (!isFile) headers["content-type"] = "application/json";
  }
  const token = me.peek()?.csrf_token;
  if (method !== "GET" && token) headers["x-csrf-token"] = token;
  const refused = asking();
  let response;
  try {
    response = await fetch(address(path) + search(asked.query), { method, headers, body, signal: asked.signal, credentials: "same-origin" });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError(0, { detail: "the service cannot be reached" });
  }
  const date = Date.parse(response.headers.get("date") ?? "");
  if (!Number.isNaN(date) && Math.abs(date - Date.now() - ahead) > 1500) ahead = date - Date.now();
  if (response.ok) return response;
  const problem = await response.json().catch(() => null);
  // A session that is to be begun or ended says itself what a refusal means there.
  if (response.status === 401 && path !== "/v1/session") refused();
  throw new ApiError(response.status, problem);
}

/** @param {string} method @param {string} path @param {Asked} [asked] @returns {Promise<any>} */
async function json(method, path, asked) {
  const response = await send(method, path, asked);
  const text = await response.text();
  return text === "" ? null : asked?.isExact ? parseExactly(text) : parse(text);
}

export const api = {
  /** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
  get: (path, query, signal) => json("GET", path, { query, signal }),
  /** Rows: their numbers stay as they were written. @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
  rows: (path, query, signal) => json("GET", path, { query, signal, isExact: true }),
  /** @param {string} path @param {any} [body] @param {Asked} [more] */
  post: (path, body, more) => json("POST", path, { body, ...more }),
  /** @param {string} path @param {any} [body] @param {Asked} [more] */
  patch: (path, body, more) => json("PATCH", path, { body, ...more }),
  /** @param {string} path */
  remove: (path) => json("DELETE", path),
};

/** @param {Record<string, any>} [query] */
export function search(query = {}) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value) && value.some((one) => String(one).includes(","))) {
      // Repeated, commas are part of the words; of one, an empty one more says so.
      for (const one of value.length > 1 ? value : [...value, ""]) found.append(name, String(one));
      continue;
    }
    const text = Array.isArray(value) ? value.join(",") : value;
    if (text !== null && text !== undefined && text !== "") found.set(name, String(text));
  }
  const said = found.toString();
  return said ? `?${said}` : "";
}

/** Who this browser is signed in as; null if nobody. @returns {Promise<Me | null>} */
export async function whoAmI() {
  try {
    await isNow(await api.get("/v1/me"));
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
  }
  return isSignedOut.peek() ? null : me.peek();
}

/** @param {{key?: string, link?: string}} proof @returns {Promise<Me>} */
export async function signIn(proof) {
  const found = await api.post("/v1/session", proof);
  await isNow(found);
  signIns.update((count) => count + 1);
  return found;
}

/**
 * Somebody is signed in. What is on the screen is that of whoever was before: it never stays under another name.
 * @param {Me} found
 * @returns {Promise<void>} none while the page is loaded anew
 */
function isNow(found) {
  const before = me.peek();
  if (before !== null && before.user_id !== found.user_id) {
    window.location.reload();
    return new Promise(() => {});
  }
  // The same again is no news: whatever follows it would begin anew.
  if (stringify(found) !== stringify(before)) me.value = found;
  arrivals += 1;
  isSignedOut.value = false;
  return Promise.resolve();
}

/**
 * An error means that the session goes on, unless there was none any more. The page is loaded anew, also when somebody comes
 * back to it: whoever signs in next finds no file and no text of whoever was there before.
 */
export async function signOut() {
  try {
    await api.remove("/v1/session");
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
  }
  me.value = null;
  window.addEventListener("pageshow", () => window.location.reload());
  window.location.assign(address("/sign-in"));
}
