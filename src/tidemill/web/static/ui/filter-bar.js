// @ts-check
/** Filter controls. Their state is in the URL only. */
import { h, keyedList, listen } from "../core/dom.js";
import { formatNumber, humanize } from "../core/format.js";
import { query, queryList, queryParam, setQuery } from "../core/router.js";
import { addShortcut } from "../core/shortcuts.js";
import { computed, effect, onCleanup } from "../core/signal.js";
import { icon } from "./icons.js";
import { statusBadge } from "./status.js";

const DEBOUNCE_MS = 250;

/** Writes a control's value to the URL. If a guard refuses the change, the control is reset, unless the user has typed more. @param {string} name @param {HTMLInputElement | HTMLSelectElement} control @param {{replace?: boolean}} [options] */
async function applyFilter(name, control, options) {
  const wanted = control.value.trim();
  await setQuery({ [name]: wanted }, options);
  const now = query.peek().get(name) ?? "";
  if (now !== wanted && control.value.trim() === wanted) control.value = now;
}

/** A search field with the shortcut `/`. @param {string} name of the query parameter @param {string} label */
export function searchFilter(name, label) {
  const text = queryParam(name);
  let timer = 0;
  const input = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: label, "aria-label": label, autocomplete: "off", spellcheck: "false" }));
  effect(() => {
    if (text.value !== input.value.trim()) input.value = text.value;
  });
  listen(input, "input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(() => applyFilter(name, input, { replace: true }), DEBOUNCE_MS);
  });
  onCleanup(() => window.clearTimeout(timer)); // typed text belongs to this screen's URL, not to the next one's
  addShortcut("/", "Search", () => input.focus());
  return input;
}

/**
 * Toggle buttons with counts; several can be on.
 * @param {string} name of the query parameter
 * @param {string} label
 * @param {() => Array<{value: string, label?: string, count?: number | null, isMinimum?: boolean}>} options
 * @param {string[]} [otherwise] used if the URL has none
 */
export function statusToggles(name, label, options, otherwise = []) {
  const urlValues = queryList(name);
  const chosen = computed(() => (urlValues.value.length ? urlValues.value : otherwise));
  /** @param {string} value */
  const toggle = (value) => {
    const now = chosen.peek();
    setQuery({ [name]: now.includes(value) ? now.filter((one) => one !== value) : [...now, value] });
  };
  // Only the count updates; the button stays the same element and keeps its focus.
  return keyedList(h("div", { class: "toggles", role: "group", "aria-label": label }), options, (one) => one.value, (one) => {
    const { value, label: text } = one.peek();
    const isCounted = () => one.value.count !== null && one.value.count !== undefined;
    return h(
      "button",
      { type: "button", "aria-pressed": () => String(chosen.value.includes(value)), on: { click: () => toggle(value) } },
      statusBadge(value, text),
      h("span", { class: "number muted", hidden: () => !isCounted() }, () => (isCounted() ? `${one.value.isMinimum ? "≥ " : ""}${formatNumber(one.value.count)}` : "")),
    );
  });
}

/**
 * A select with one value or none.
 * @param {string} name of the query parameter
 * @param {string} label
 * @param {() => Array<{value: string, label?: string}>} options
 * @param {string} [any]
 */
export function selectFilter(name, label, options, any = "any") {
  const chosen = queryParam(name);
  const all = () => {
    const [now, known] = [chosen.value, options()];
    return [{ value: "", label: any }, ...(now === "" || known.some((one) => one.value === now) ? [] : [{ value: now }]), ...known];
  };
  const select = h("select", { "aria-label": label, on: { change: (/** @type {Event} */ event) => applyFilter(name, /** @type {HTMLSelectElement} */ (event.target)) } });
  return keyedList(select, all, (one) => one.value, (/** @type {import("../core/signal.js").Signal<{value: string, label?: string}>} */ one) =>
    h("option", { value: one.peek().value, selected: () => chosen.value === one.peek().value }, () => `${label}: ${one.value.label ?? humanize(one.value.value)}`),
  );
}

/** A date field. @param {string} name @param {string} label */
export function dateFilter(name, label) {
  const date = queryParam(name);
  return h("label", { class: "row small muted" }, label, h("input", { type: "date", value: () => date.value, on: { change: (/** @type {Event} */ event) => applyFilter(name, /** @type {HTMLInputElement} */ (event.target)) } }));
}

/** A button that removes these parameters from the URL; visible while one is set. @param {string[]} names */
export function clearFiltersButton(names) {
  const isSet = () => names.some((name) => query.value.has(name));
  return h("button", { type: "button", class: "plain small", hidden: () => !isSet(), on: { click: () => setQuery(Object.fromEntries(names.map((name) => [name, null]))) } }, icon("close"), "Clear filters");
}
