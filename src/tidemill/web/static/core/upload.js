// @ts-check
/** A file on its way to the service, with how far it is: fetch does not tell that of what it sends. */
import { ApiError, asking, me, search } from "./api.js";
import { parse } from "./json.js";
import { address } from "./place.js";

/**
 * @param {string} path
 * @param {Blob} file
 * @param {{query?: Record<string, any>, headers?: Record<string, string>, signal?: AbortSignal, onProgress?: (sent: number) => void}} [how]
 * @returns {Promise<any>}
 */
export function upload(path, file, how = {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const refused = asking();
    request.open("POST", address(path) + search(how.query));
    const headers = { accept: "application/json", "content-type": "application/octet-stream", "x-csrf-token": me.peek()?.csrf_token ?? "", ...how.headers };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => how.onProgress?.(event.loaded));
    request.addEventListener("load", () => answered(request, refused, resolve, reject));
    request.addEventListener("error", () => reject(new ApiError(0, { detail: "the service cannot be reached, or has broken off; nothing was kept" })));
    request.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
    how.signal?.addEventListener("abort", () => request.abort(), { once: true });
    request.send(file);
  });
}

/** @param {XMLHttpRequest} request @param {() => void} refused @param {(answer: any) => void} resolve @param {(error: Error) => void} reject */
function answered(request, refused, resolve, reject) {
  let answer = null;
  try {
    answer = parse(request.responseText);
  } catch {
    // A proxy's own page, for one: the status says enough.
  }
  if (request.status >= 200 && request.status < 300) return resolve(answer);
  if (request.status === 401) refused();
  return reject(new ApiError(request.status, answer));
}
