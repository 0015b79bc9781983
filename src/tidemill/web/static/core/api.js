// @ts-check
/**
 * Requests to the API. A failed request throws an ApiError built from the problem document in the response.
 */
import { parse, parseExactly, stringify } from "./json.js";
import { signal } from "./signal.js";
import { toUrl } from "./url.js";

/** @typedef {{user_id: number, name: string, role: "user" | "admin", by: string, csrf_token: string | null}} Me */
/** @typedef {{query?: Record<string, any>, body?: any, raw?: string, headers?: Record<string, string>, signal?: AbortSignal, isExact?: boolean}} RequestOptions */

/** The signed-in user; null until it is known. @type {import("./signal.js").Signal<Me | null>} */
export const currentUser = signal(/** @type {Me | null} */ (null));
/** True after a session of this browser has ended. */
export const isSignedOut = signal(false);
/** Increases on every sign-in, so that effects can repeat requests that failed in between. */
export const signInCount = signal(0);

/** Counts sessions. A 401 response to a request of an earlier session must not end the current one. */
let sessionNumber = 0;

/** Call when a request starts. Returns the handler to call if the response is 401. */
export function unauthorizedHandler() {
  const startedIn = sessionNumber;
  return () => {
    if (currentUser.peek() !== null && sessionNumber === startedIn) isSignedOut.value = true;
  };
}

/** The offset of the server's clock from the browser's, in milliseconds. */
let clockOffsetMs = 0;

export class ApiError extends Error {
  /** @param {number} status @param {any} problem */
  constructor(status, problem) {
    super(problem?.detail || problem?.title || (status ? `The service returned status ${status}` : "The service cannot be reached"));
    this.name = "ApiError";
    this.status = status;
    this.requestId = problem?.request_id ?? null;
    /** @type {Array<{pointer?: string, parameter?: string, detail: string}>} */
    this.errors = problem?.errors ?? [];
  }
}

/** The current time by the server's clock. */
export function serverNow() {
  return Date.now() + clockOffsetMs;
}

/** @param {unknown} error */
export function isAbortError(error) {
  return error instanceof DOMException && error.name === "AbortError";
}

/** True if the resource does not exist, or the user may not see it. @param {unknown} error */
export function isNotFound(error) {
  return error instanceof ApiError && error.status === 404;
}

/**
 * @param {string} method
 * @param {string} path such as `/v1/jobs`
 * @param {RequestOptions} [options] `raw` is a body that is already JSON
 * @returns {Promise<Response>}
 */
export async function sendRequest(method, path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { accept: "application/json", ...options.headers };
  let body;
  if (options.raw !== undefined || options.body !== undefined) {
    const isFile = options.body instanceof Blob || options.body instanceof FormData;
    body = options.raw ?? (isFile ? options.body : stringify(options.body));
    if (!isFile) headers["content-type"] = "application/json";
  }
  const token = currentUser.peek()?.csrf_token;
  if (method !== "GET" && token) headers["x-csrf-token"] = token;
  const onUnauthorized = unauthorizedHandler();
  let response;
  try {
    response = await fetch(toUrl(path) + queryString(options.query), { method, headers, body, signal: options.signal, credentials: "same-origin" });
  } catch (error) {
    if (isAbortError(error)) throw error;
    throw new ApiError(0, { detail: "The service cannot be reached" });
  }
  const date = Date.parse(response.headers.get("date") ?? "");
  if (!Number.isNaN(date) && Math.abs(date - Date.now() - clockOffsetMs) > 1500) clockOffsetMs = date - Date.now();
  if (response.ok) return response;
  const problem = await response.json().catch(() => null);
  // Session requests handle 401 themselves.
  if (response.status === 401 && path !== "/v1/session") onUnauthorized();
  throw new ApiError(response.status, problem);
}

/** @param {string} method @param {string} path @param {RequestOptions} [options] @returns {Promise<any>} */
async function requestJson(method, path, options) {
  const response = await sendRequest(method, path, options);
  const text = await response.text();
  return text === "" ? null : options?.isExact ? parseExactly(text) : parse(text);
}

export const api = {
  /** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
  get: (path, query, signal) => requestJson("GET", path, { query, signal }),
  /** Like `get`, but numbers keep their source text. For rows. @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
  getExact: (path, query, signal) => requestJson("GET", path, { query, signal, isExact: true }),
  /** @param {string} path @param {any} [body] @param {RequestOptions} [more] */
  post: (path, body, more) => requestJson("POST", path, { body, ...more }),
  /** @param {string} path @param {any} [body] @param {RequestOptions} [more] */
  patch: (path, body, more) => requestJson("PATCH", path, { body, ...more }),
  /** @param {string} path */
  delete: (path) => requestJson("DELETE", path),
};

/** @param {Record<string, any>} [query] */
export function queryString(query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value) && value.some((one) => String(one).includes(","))) {
      // A repeated parameter may contain commas. A single value is marked as repeated by an empty second one.
      for (const one of value.length > 1 ? value : [...value, ""]) params.append(name, String(one));
      continue;
    }
    const text = Array.isArray(value) ? value.join(",") : value;
    if (text !== null && text !== undefined && text !== "") params.set(name, String(text));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

/** Loads the user of this browser's session. Returns null if there is no session. @returns {Promise<Me | null>} */
export async function fetchCurrentUser() {
  try {
    await setCurrentUser(await api.get("/v1/me"));
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
  }
  return isSignedOut.peek() ? null : currentUser.peek();
}

/** @param {{key?: string, link?: string}} proof @returns {Promise<Me>} */
export async function signIn(proof) {
  const user = await api.post("/v1/session", proof);
  await setCurrentUser(user);
  signInCount.update((count) => count + 1);
  return user;
}

/**
 * Sets the signed-in user. If it is another user, reloads the page so that no data of the previous user stays visible.
 * @param {Me} user
 * @returns {Promise<void>} never resolves if the page reloads
 */
function setCurrentUser(user) {
  const before = currentUser.peek();
  if (before !== null && before.user_id !== user.user_id) {
    window.location.reload();
    return new Promise(() => {});
  }
  // Setting an equal value would rerun every effect that reads the user.
  if (stringify(user) !== stringify(before)) currentUser.value = user;
  sessionNumber += 1;
  isSignedOut.value = false;
  return Promise.resolve();
}

/**
 * Ends the session and loads the sign-in page. The page is also reloaded when the browser restores it from its history, so
 * that no file or text of this user is left for the next one. Throws if the session could not be ended.
 */
export async function signOut() {
  try {
    await api.delete("/v1/session");
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) throw error;
  }
  currentUser.value = null;
  window.addEventListener("pageshow", () => window.location.reload());
  window.location.assign(toUrl("/sign-in"));
}

/** A random key. `crypto.randomUUID` is unavailable on pages that were not loaded over TLS. */
export function newIdempotencyKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");
}
