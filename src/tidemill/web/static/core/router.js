// @ts-check
/**
 * Addresses. Every filter is in the address: whoever gets a link sees the same.
 */
import { ROOT, address } from "./place.js";
import { batch, computed, signal } from "./signal.js";

/** @typedef {{path: string, load: () => Promise<any>, [more: string]: any}} Route */
/** @typedef {{route: Route, params: Record<string, string>}} Match */

/** The path below the root, beginning with a slash. */
export const path = signal(here());
/** What follows the question mark. */
export const query = signal(new URLSearchParams(window.location.search));

/** Asked before the address changes; false keeps it. @type {Set<(next: string) => boolean | Promise<boolean>>} */
const guards = new Set();

/** The address of what is on the screen. */
let shown = window.location.href;

function here() {
  const whole = window.location.pathname;
  return "/" + (whole.startsWith(ROOT) ? whole.slice(ROOT.length) : whole.replace(/^\//, ""));
}

function read() {
  shown = window.location.href;
  batch(() => {
    path.value = here();
    query.value = new URLSearchParams(window.location.search);
  });
}

/** An address for a link. @param {string} to @param {Record<string, any>} [words] */
export function href(to, words = {}) {
  const search = write(new URLSearchParams(), words).toString();
  return address(to) + (search ? `?${search}` : "");
}

/** @param {string} to @param {Record<string, any>} [words] @param {{replace?: boolean}} [how] */
export async function go(to, words = {}, how = {}) {
  await visit(href(to, words), how);
}

/**
 * Change some words of the query; null takes one away.
 * @param {Record<string, any>} words
 * @param {{replace?: boolean}} [how]
 */
export async function setQuery(words, how = {}) {
  const next = write(new URLSearchParams(query.peek()), words).toString();
  if (next === query.peek().toString()) return;
  await visit(window.location.pathname + (next ? `?${next}` : ""), how);
}

/** A word of the query, followed. @param {string} name */
export function word(name) {
  return computed(() => query.value.get(name) ?? "");
}

/** Words of the query, followed: between commas; or repeated, and then commas are their own. @param {string} name */
export function words(name) {
  const said = computed(() => JSON.stringify(query.value.getAll(name)));
  return computed(() => {
    const all = JSON.parse(said.value);
    return (all.length > 1 ? all : (all[0] ?? "").split(",")).filter((/** @type {string} */ one) => one !== "");
  });
}

/** @param {URLSearchParams} search @param {Record<string, any>} changes */
function write(search, changes) {
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

/** @param {string} next @param {{replace?: boolean}} how */
async function visit(next, how) {
  for (const guard of guards) if (!(await guard(next))) return;
  window.history[how.replace ? "replaceState" : "pushState"]({}, "", next);
  read();
}

/** Back and forward: the browser has changed the address already, and who is refused gets the old one again. */
async function wentBack() {
  const wanted = window.location.href;
  const was = shown;
  for (const guard of guards) {
    if (await guard(wanted)) continue;
    if (window.location.href === wanted) window.history.pushState({}, "", was);
    return;
  }
  read();
}

/** Ask before the address changes. @param {(next: string) => boolean | Promise<boolean>} guard @returns {() => void} */
export function guardChanges(guard) {
  guards.add(guard);
  return () => guards.delete(guard);
}

/** The route of a path; the first that fits. @param {Route[]} routes @param {string} at @returns {Match | null} */
export function match(routes, at) {
  for (const route of routes) {
    const params = fit(route.path, at);
    if (params !== null) return { route, params };
  }
  return null;
}

/** @param {string} pattern as in `/jobs/:job/:tab?` @param {string} at @returns {Record<string, string> | null} */
export function fit(pattern, at) {
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

/** Links of ours change the address without loading the page anew. */
export function startRouter() {
  window.addEventListener("popstate", wentBack);
  document.addEventListener("click", (event) => {
    const link = /** @type {HTMLElement} */ (event.target).closest?.("a[href]");
    if (!(link instanceof HTMLAnchorElement) || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.target || link.hasAttribute("download")) return;
    if (link.origin !== window.location.origin || !link.pathname.startsWith(ROOT) || link.pathname.startsWith(`${ROOT}v1/`)) return;
    event.preventDefault();
    visit(link.pathname + link.search, {});
  });
}
