// @ts-check
/** Uploads files with progress. Uses XMLHttpRequest, as fetch reports no upload progress. */
import { ApiError, currentUser, queryString, unauthorizedHandler } from "./api.js";
import { parse } from "./json.js";
import { toUrl } from "./url.js";

/**
 * @param {string} path
 * @param {Blob} file
 * @param {{query?: Record<string, any>, headers?: Record<string, string>, signal?: AbortSignal, onProgress?: (sent: number) => void}} [options]
 * @returns {Promise<any>}
 */
export function uploadFile(path, file, options = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const onUnauthorized = unauthorizedHandler();
    request.open("POST", toUrl(path) + queryString(options.query));
    const headers = { accept: "application/json", "content-type": "application/octet-stream", "x-csrf-token": currentUser.peek()?.csrf_token ?? "", ...options.headers };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => options.onProgress?.(event.loaded));
    request.addEventListener("load", () => handleResponse(request, onUnauthorized, resolve, reject));
    request.addEventListener("error", () => reject(new ApiError(0, { detail: "The upload failed: the service cannot be reached or closed the connection. Nothing was stored." })));
    request.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
    options.signal?.addEventListener("abort", () => request.abort(), { once: true });
    request.send(file);
  });
}

/** @param {XMLHttpRequest} request @param {() => void} onUnauthorized @param {(answer: any) => void} resolve @param {(error: Error) => void} reject */
function handleResponse(request, onUnauthorized, resolve, reject) {
  let body = null;
  try {
    body = parse(request.responseText);
  } catch {
    // For example, an error page of a proxy. The status is enough.
  }
  if (request.status >= 200 && request.status < 300) return resolve(body);
  if (request.status === 401) onUnauthorized();
  return reject(new ApiError(request.status, body));
}
