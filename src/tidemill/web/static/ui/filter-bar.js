// @ts-check
/** Filters. What is chosen stands in the address, and nowhere else. */
import { each, h, listen } from "../core/dom.js";
import { count, words as say } from "../core/format.js";
import { query, setQuery, word, words } from "../core/router.js";
import { onKeys } from "../core/keys.js";
import { computed, effect, onCleanup } from "../core/signal.js";
import { icon } from "./icons.js";
import { status } from "./status.js";

const PAUSE_MS = 250;

/** Say it in the address. Whoever is asked about that may refuse: the control then shows what was, unless somebody has typed on. @param {string} name @param {HTMLInputElement | HTMLSelectElement} control @param {{replace?: boolean}} [how] */
async function put(name, control, how) {
  const wanted = control.value.trim();
  await setQuery({ [name]: wanted }, how);
  const now = query.peek().get(name) ?? "";
  if (now !== wanted && control.value.trim() === wanted) control.value = now;
}

/** A search field, reached with `/`. @param {string} name in the address @param {string} label */
export function searchField(name, label) {
  const said = word(name);
  let timer = 0;
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: "false" }));
  effect(() => {
    if (said.value !== input.value.trim()) input.value = said.value;
  });
  listen(input, "input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => put(name, input, { replace: true }), PAUSE_MS);
  });
  onCleanup(() => window.clearTimeout(timer)); // what was typed is a word of this screen's address, not of the next one's
  onKeys("/", "Search", () => input.focus());
  return input;
}

/**
 * Buttons, of which several may be pressed, each with how many there are.
 * @param {string} name in the address
 * @param {string} label
 * @param {() => Array<{value: string, said?: string, n?: number | null, atLeast?: boolean}>} options
 * @param {string[]} [otherwise] what is meant when the address says nothing
 */
export function statusToggles(name, label, options, otherwise = []) {
  const said = words(name);
  const chosen = computed(() => (said.value.length ? said.value : otherwise));
  /** @param {string} value */
  const toggle = (value) => {
    const now = chosen.peek();
    setQuery({ [name]: now.includes(value) ? now.filter((one) => one !== value) : [...now, value] });
  };
  // The number follows; the button stays the same one, under the pointer and with the focus.
  return each(h("div", { class: "toggles", role: "group", "aria-label": label }), options, (one) => one.value, (one) => {
    const { value, said } = one.peek();
    const isCounted = () => one.value.n !== null && one.value.n !== undefined;
    return h(
      "button",
      { type: "button", "aria-pressed": () => String(chosen.value.includes(value)), on: { click: () => toggle(value) } },
      status(value, said),
      h("span", { class: "number muted", hidden: () => !isCounted() }, () => (isCounted() ? `${one.value.atLeast ? "≥ " : ""}${count(one.value.n)}` : "")),
    );
  });
}

/**
 * One of some, or none.
 * @param {string} name in the address
 * @param {string} label
 * @param {() => Array<{value: string, said?: string}>} options
 * @param {string} [any]
 */
export function choice(name, label, options, any = "any") {
  const said = word(name);
  const all = () => {
    const [now, known] = [said.value, options()];
    return [{ value: "", said: any }, ...(now === "" || known.some((one) => one.value === now) ? [] : [{ value: now }]), ...known];
  };
  const select = h("select", { "aria-label": label, on: { change: (/** @type {Event} */ event) => put(name, /** @type {HTMLSelectElement} */ (event.target)) } });
  return each(select, all, (one) => one.value, (/** @type {import("../core/signal.js").Signal<{value: string, said?: string}>} */ one) =>
    h("option", { value: one.peek().value, selected: () => said.value === one.peek().value }, () => `${label}: ${one.value.said ?? say(one.value.value)}`),
  );
}

/** A day, in the address as the date it is. @param {string} name @param {string} label */
export function dateField(name, label) {
  const said = word(name);
  return h("label", { class: "row small muted" }, label, h("input", { type: "date", value: () => said.value, on: { change: (/** @type {Event} */ event) => put(name, /** @type {HTMLInputElement} */ (event.target)) } }));
}

/** Takes all these words out of the address; there while one is in it. @param {string[]} names */
export function clearFilters(names) {
  const isSet = () => names.some((name) => query.value.has(name));
  return h("button", { type: "button", class: "plain small", hidden: () => !isSet(), on: { click: () => setQuery(Object.fromEntries(names.map((name) => [name, null]))) } }, icon("close"), "Clear filters");
}
