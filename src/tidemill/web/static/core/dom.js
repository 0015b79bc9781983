// @ts-check
/**
 * Creates elements. Strings always become text nodes: these functions never parse markup.
 */
import { Signal, effect, effectScope, onCleanup, signal } from "./signal.js";

/** @typedef {Node | string | number | bigint | boolean | null | undefined | Signal<any> | (() => any) | Array<any>} Child */

const AS_PROPERTY = new Set(["value", "checked", "disabled", "selected", "indeterminate", "hidden", "open", "inert", "readOnly"]);
const SVG = "http://www.w3.org/2000/svg";

/**
 * Creates an element. Attributes and children that are functions rerun when a signal they read changes.
 *
 * `on` takes listeners, `data` data attributes, `style` custom properties; `ref` is called with the element.
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes ?? {});
  appendChildren(element, children);
  return element;
}

/** @param {string} tag @param {Record<string, string>} attributes @param {...Node} children */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** @param {HTMLElement} element @param {Record<string, any>} attributes */
function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "data") for (const [key, one] of Object.entries(value)) bindValue(one, (now) => setData(element, key, now));
    else if (name === "style") for (const [key, one] of Object.entries(value)) bindValue(one, (now) => element.style.setProperty(key, now));
    else if (name === "ref") value(element);
    else bindValue(value, (now) => setAttribute(element, name, now));
  }
}

/** @param {any} value @param {(now: any) => void} apply */
function bindValue(value, apply) {
  if (typeof value === "function") effect(() => apply(value()));
  else if (value instanceof Signal) effect(() => apply(value.value));
  else apply(value);
}

/** @param {HTMLElement} element @param {string} key @param {any} value */
function setData(element, key, value) {
  if (value === null || value === undefined || value === false) delete element.dataset[key];
  else element.dataset[key] = String(value);
}

/** @param {HTMLElement} element @param {string} name @param {any} value */
function setAttribute(element, name, value) {
  if (AS_PROPERTY.has(name)) /** @type {any} */ (element)[name] = value ?? "";
  else if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** @param {Node} parent @param {Child[]} children */
export function appendChildren(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true) continue;
    if (Array.isArray(child)) appendChildren(parent, child);
    else if (child instanceof Node) parent.appendChild(child);
    else if (child instanceof Signal) appendReactive(parent, () => child.value);
    else if (typeof child === "function") appendReactive(parent, child);
    else parent.appendChild(document.createTextNode(String(child)));
  }
}

/** Appends content that is rendered again when a signal it read changes. @param {Node} parent @param {() => any} make */
function appendReactive(parent, make) {
  const end = document.createComment("");
  parent.appendChild(end);
  /** @type {ChildNode[]} */
  let shown = [];
  effect(() => {
    const next = document.createDocumentFragment();
    try {
      appendChildren(next, [make()]);
    } catch (error) {
      // For example, a response with an unexpected shape. Show the error here and keep the rest of the page.
      reportError(error);
      next.replaceChildren(h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, "This part cannot be displayed. The service may have been updated: reload the page."));
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
  // Nested reactive content: the outer one only knows the nodes it rendered initially.
  onCleanup(() => shown.forEach((node) => node.remove()));
}

/**
 * Renders one element for each entry and keeps it while its key is in the list.
 * @template T
 * @param {HTMLElement} parent
 * @param {() => T[]} entries
 * @param {(entry: T) => string | number} keyOf
 * @param {(entry: Signal<T>) => HTMLElement} make
 */
export function keyedList(parent, entries, keyOf, make) {
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
        const [element, end] = effectScope(() => make(holder));
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

/** Adds a listener that is removed when the surrounding scope ends. @param {EventTarget} target @param {string} name @param {(event: any) => void} listener @param {AddEventListenerOptions} [options] */
export function listen(target, name, listener, options) {
  target.addEventListener(name, listener, options);
  onCleanup(() => target.removeEventListener(name, listener, options));
}

let lastId = 0;
/** An id that is unique on this page. @param {string} [prefix] */
export function uniqueId(prefix = "u") {
  lastId += 1;
  return `${prefix}${lastId}`;
}
