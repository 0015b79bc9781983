// @ts-check
/**
 * Elements. Text is only ever text: there is no way to give markup to these functions.
 */
import { Signal, effect, scope, signal, onCleanup } from "./signal.js";

/** @typedef {Node | string | number | bigint | boolean | null | undefined | (() => any) | Array<any>} Child */

const AS_PROPERTY = new Set(["value", "checked", "disabled", "selected", "indeterminate", "hidden", "open", "inert", "readOnly"]);
const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. Attributes and children that are functions follow the signals they read.
 *
 * `on` holds listeners, `data` data attributes, `style` custom properties, `ref` is called with the element.
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  dress(made, attributes ?? {});
  append(made, children);
  return made;
}

/** @param {string} tag @param {Record<string, string>} attributes @param {...Node} children */
export function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** @param {HTMLElement} made @param {Record<string, any>} attributes */
function dress(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else if (name === "data") for (const [key, one] of Object.entries(value)) follow(one, (now) => setData(made, key, now));
    else if (name === "style") for (const [key, one] of Object.entries(value)) follow(one, (now) => made.style.setProperty(key, now));
    else if (name === "ref") value(made);
    else follow(value, (now) => set(made, name, now));
  }
}

/** @param {any} value @param {(now: any) => void} apply */
function follow(value, apply) {
  if (typeof value === "function") effect(() => apply(value()));
  else if (value instanceof Signal) effect(() => apply(value.value));
  else apply(value);
}

/** @param {HTMLElement} made @param {string} key @param {any} value */
function setData(made, key, value) {
  if (value === null || value === undefined || value === false) delete made.dataset[key];
  else made.dataset[key] = String(value);
}

/** @param {HTMLElement} made @param {string} name @param {any} value */
function set(made, name, value) {
  if (AS_PROPERTY.has(name)) /** @type {any} */ (made)[name] = value ?? "";
  else if (value === null || value === undefined || value === false) made.removeAttribute(name);
  else made.setAttribute(name, value === true ? "" : String(value));
}

/** @param {Node} parent @param {Child[]} children */
export function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) append(parent, child);
    else if (child instanceof Node) parent.appendChild(child);
    else if (child instanceof Signal) live(parent, () => child.value);
    else if (typeof child === "function") live(parent, child);
    else parent.appendChild(document.createTextNode(String(child)));
  }
}

/** A part that is made again when what it read has changed. @param {Node} parent @param {() => any} make */
function live(parent, make) {
  const end = document.createComment("");
  parent.appendChild(end);
  /** @type {ChildNode[]} */
  let shown = [];
  effect(() => {
    const next = document.createDocumentFragment();
    try {
      append(next, [make()]);
    } catch (error) {
      // An answer that is not as it was thought to be, for one: said where it would stand, and nowhere else.
      reportError(error);
      next.replaceChildren(h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, "This part cannot be shown: the service may be of another version than this page. Load the page again."));
    }
    const nodes = /** @type {ChildNode[]} */ ([...next.childNodes]);
    if (shown.length === 1 && nodes.length === 1 && shown[0] instanceof Text && nodes[0] instanceof Text) {
      if (shown[0].data !== nodes[0].data) shown[0].data = nodes[0].data;
      return;
    }
    for (const node of shown) node.remove();
    end.before(next);
    shown = nodes;
  });
  // One that stands directly in another: the outer one knows only what was there when it was made.
  onCleanup(() => shown.forEach((node) => node.remove()));
}

/**
 * One element for each entry, kept while its key is there: nothing is made anew because its neighbour has changed.
 * @template T
 * @param {HTMLElement} parent
 * @param {() => T[]} entries
 * @param {(entry: T) => string | number} keyOf
 * @param {(entry: Signal<T>) => HTMLElement} make
 */
export function each(parent, entries, keyOf, make) {
  /** @type {Map<string | number, {element: HTMLElement, entry: Signal<T>, end: () => void}>} */
  const shown = new Map();
  effect(() => {
    const now = entries();
    const keys = new Set(now.map(keyOf));
    for (const [key, one] of shown) {
      if (keys.has(key)) continue;
      one.end();
      one.element.remove();
      shown.delete(key);
    }
    let before = /** @type {Element | null} */ (parent.firstElementChild);
    for (const entry of now) {
      const key = keyOf(entry);
      let one = shown.get(key);
      if (one === undefined) {
        const holder = signal(entry);
        const [element, end] = scope(() => make(holder));
        one = { element, entry: holder, end };
        shown.set(key, one);
      } else one.entry.value = entry;
      if (one.element === before) before = before.nextElementSibling;
      else parent.insertBefore(one.element, before);
    }
  });
  onCleanup(() => shown.forEach((one) => one.end()));
  return parent;
}

/** Listen as long as the scope around this lasts. @param {EventTarget} target @param {string} name @param {(event: any) => void} listener @param {AddEventListenerOptions} [options] */
export function listen(target, name, listener, options) {
  target.addEventListener(name, listener, options);
  onCleanup(() => target.removeEventListener(name, listener, options));
}

let numbers = 0;
/** An id that nobody else has. @param {string} [before] */
export function uid(before = "u") {
  numbers += 1;
  return `${before}${numbers}`;
}
