// @ts-check
/**
 * The URL. It contains every filter, so that a shared link shows the same data.
 */
import { batch, computed, signal } from "./signal.js";
import { BASE_PATH, toUrl } from "./url.js";

/** @typedef {{path: string, load: () => Promise<any>, [more: string]: any}} Route */
/** @typedef {{route: Route, params: Record<string, string>}} Match */

/** The path below the base path, with a leading slash. */
export const path = signal(currentPath());
/** The query parameters. */
export const query = signal(new URLSearchParams(window.location.search));

/** Called before the URL changes; returning false cancels the change. @type {Set<(next: string) => boolean | Promise<boolean>>} */
const guards = new Set();

/** The URL of the current screen. */
let shownUrl = window.location.href;

function currentPath() {
  const whole = window.location.pathname;
  return `/${whole.startsWith(BASE_PATH) ? whole.slice(BASE_PATH.length) : whole.replace(/^\//, "")}`;
}

function syncFromLocation() {
  shownUrl = window.location.href;
  batch(() => {
    path.value = currentPath();
    query.value = new URLSearchParams(window.location.search);
  });
}

/** Builds the URL for a link. @param {string} to @param {Record<string, any>} [params] */
export function href(to, params = {}) {
  const search = writeParams(new URLSearchParams(), params).toString();
  return toUrl(to) + (search ? `?${search}` : "");
}

/** @param {string} to @param {Record<string, any>} [params] @param {{replace?: boolean}} [options] */
export async function navigate(to, params = {}, options = {}) {
  await changeUrl(href(to, params), options);
}

/**
 * Changes query parameters; null removes one.
 * @param {Record<string, any>} params
 * @param {{replace?: boolean}} [options]
 */
export async function setQuery(params, options = {}) {
  const next = writeParams(new URLSearchParams(query.peek()), params).toString();
  if (next === query.peek().toString()) return;
  await changeUrl(window.location.pathname + (next ? `?${next}` : ""), options);
}

/** A query parameter as a signal. @param {string} name */
export function queryParam(name) {
  return computed(() => query.value.get(name) ?? "");
}

/** A list parameter as a signal: separated by commas, or repeated if values contain commas. @param {string} name */
export function queryList(name) {
  const values = computed(() => JSON.stringify(query.value.getAll(name)));
  return computed(() => {
    const all = /** @type {string[]} */ (JSON.parse(values.value));
    return (all.length > 1 ? all : (all[0] ?? "").split(",")).filter((one) => one !== "");
  });
}

/** @param {URLSearchParams} search @param {Record<string, any>} changes */
function writeParams(search, changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (Array.isArray(value) && value.some((one) => String(one).includes(","))) {
      search.delete(name);
      for (const one of value.length > 1 ? value : [...value, ""]) search.append(name, String(one));
      continue;
    }
    const text = Array.isArray(value) ? value.join(",") : value;
    if (text === null || text === undefined || text === "" || text === false) search.delete(name);
    else search.set(name, text === true ? "1" : String(text));
  }
  return search;
}

/** @param {string} next @param {{replace?: boolean}} options */
async function changeUrl(next, options) {
  for (const guard of guards) if (!(await guard(next))) return;
  window.history[options.replace ? "replaceState" : "pushState"]({}, "", next);
  syncFromLocation();
}

/** Handles Back and Forward. The browser has already changed the URL; if a guard refuses, the old URL is restored. */
async function onPopState() {
  const wanted = window.location.href;
  const was = shownUrl;
  for (const guard of guards) {
    if (await guard(wanted)) continue;
    if (window.location.href === wanted) window.history.pushState({}, "", was);
    return;
  }
  syncFromLocation();
}

/** Registers a guard that can cancel a change of the URL. @param {(next: string) => boolean | Promise<boolean>} guard @returns {() => void} */
export function addNavigationGuard(guard) {
  guards.add(guard);
  return () => guards.delete(guard);
}

/** Returns the first route that matches the path. @param {Route[]} routes @param {string} at @returns {Match | null} */
export function matchRoute(routes, at) {
  for (const route of routes) {
    const params = matchPath(route.path, at);
    if (params !== null) return { route, params };
  }
  return null;
}

/** @param {string} pattern such as `/jobs/:job/:tab?` @param {string} at @returns {Record<string, string> | null} */
function matchPath(pattern, at) {
  const wanted = pattern.split("/").filter(Boolean);
  const given = at.split("/").filter(Boolean);
  if (given.length > wanted.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [index, step] of wanted.entries()) {
    const one = given[index];
    if (step.startsWith(":")) {
      if (one === undefined && !step.endsWith("?")) return null;
      if (one !== undefined) params[step.replace(/^:|\?$/g, "")] = decode(one);
    } else if (one !== step) return null;
  }
  return params;
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Links within the app change the URL without loading the page. */
export function startRouter() {
  window.addEventListener("popstate", onPopState);
  document.addEventListener("click", (event) => {
    const link = /** @type {HTMLElement} */ (event.target).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target || link.hasAttribute("download")) return;
    if (link.origin !== window.location.origin || !link.pathname.startsWith(BASE_PATH) || link.pathname.startsWith(`${BASE_PATH}v1/`)) return;
    event.preventDefault();
    changeUrl(link.pathname + link.search, {});
  });
}
