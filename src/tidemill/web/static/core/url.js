// @ts-check
/** URLs of the service. The base path is derived from the URL of this file, so any proxy prefix works. */

/** Ends with a slash. */
export const BASE_PATH = new URL("../../../", import.meta.url).pathname;

/** The URL path of a route such as `/v1/me`. @param {string} path */
export function toUrl(path) {
  return BASE_PATH + path.replace(/^\//, "");
}

/** The absolute URL, for users to copy. @param {string} path */
export function toAbsoluteUrl(path) {
  return new URL(toUrl(path), window.location.href).href;
}
