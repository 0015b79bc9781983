// @ts-check
/** Where the service is: known from where this file came from, whatever prefix a proxy shows it under. */

/** Ends with a slash. */
export const ROOT = new URL("../../../", import.meta.url).pathname;

/** The address of a route of ours, as in `/v1/me`. @param {string} path */
export function address(path) {
  return ROOT + path.replace(/^\//, "");
}

/** The same, whole, for people to copy. @param {string} path */
export function wholeAddress(path) {
  return new URL(address(path), window.location.href).href;
}
