// @ts-check
/**
 * The selection of a list, as a predicate that is independent of the loaded rows: either keys and ranges of numeric keys,
 * or all matching rows with exceptions.
 */
import { signal } from "../core/signal.js";

/** @typedef {string | number} Key */

export class Selection {
  constructor() {
    this.isAll = false;
    /** The selected keys; if `isAll`, the exceptions. @type {Set<Key>} */
    this.keys = new Set();
    /** Inclusive ranges, disjoint and in order. @type {Array<[number, number]>} */
    this.ranges = [];
    /** Increases on every change. */
    this.version = signal(0);
  }

  /** @param {Key} key */
  has(key) {
    if (this.isAll) return !this.keys.has(key);
    return this.keys.has(key) || (typeof key === "number" && this.ranges.some(([lo, hi]) => lo <= key && key <= hi));
  }

  /** @param {number} matching the number of matching rows */
  size(matching) {
    if (this.isAll) return Math.max(0, matching - this.keys.size);
    return this.keys.size + this.ranges.reduce((sum, [lo, hi]) => sum + hi - lo + 1, 0);
  }

  get isEmpty() {
    return !this.isAll && this.keys.size === 0 && this.ranges.length === 0;
  }

  /** @param {Key} key */
  toggle(key) {
    if (this.has(key)) this.remove(key);
    else this.add(key);
  }

  /** @param {Key} key */
  add(key) {
    if (this.isAll) this.keys.delete(key);
    else if (!this.has(key)) this.keys.add(key);
    this._changed();
  }

  /** @param {Key} key */
  remove(key) {
    if (this.isAll) this.keys.add(key);
    else if (!this.keys.delete(key) && typeof key === "number") {
      this.ranges = this.ranges.flatMap(([lo, hi]) => (key < lo || key > hi ? [[lo, hi]] : removeFromRange(lo, hi, key)));
    }
    this._changed();
  }

  /** @param {number} a @param {number} b */
  addRange(a, b) {
    const [lo, hi] = [Math.min(a, b), Math.max(a, b)];
    if (this.isAll) for (const key of this.keys) if (typeof key === "number" && lo <= key && key <= hi) this.keys.delete(key);
    if (!this.isAll) {
      for (const key of this.keys) if (typeof key === "number" && lo <= key && key <= hi) this.keys.delete(key);
      this.ranges = mergeRanges([...this.ranges, [lo, hi]]);
    }
    this._changed();
  }

  /** The current selection, for `restore`. @returns {{isAll: boolean, keys: Set<Key>, ranges: Array<[number, number]>}} */
  snapshot() {
    return { isAll: this.isAll, keys: new Set(this.keys), ranges: this.ranges };
  }

  /** @param {ReturnType<Selection["snapshot"]>} copy */
  restore({ isAll, keys, ranges }) {
    Object.assign(this, { isAll, keys: new Set(keys), ranges });
    this._changed();
  }

  /** @param {Iterable<Key>} keys */
  addMany(keys) {
    for (const key of keys) if (this.isAll) this.keys.delete(key);
      else if (!this.has(key)) this.keys.add(key);
    this._changed();
  }

  /** Selects all rows that match the filter. */
  selectAll() {
    this.isAll = true;
    this.keys = new Set();
    this.ranges = [];
    this._changed();
  }

  clear() {
    if (this.isEmpty) return;
    this.isAll = false;
    this.keys = new Set();
    this.ranges = [];
    this._changed();
  }

  /** All selected keys in order; null if there are more than `maxKeys`, or if all matching rows are selected. @param {number} maxKeys @returns {Key[] | null} */
  toKeys(maxKeys) {
    return this.isAll ? null : (this.toKeysAndRanges(maxKeys)?.keys ?? null);
  }

  /**
   * Splits the selection into keys and the longest ranges; shorter ranges become keys. Null if there are more than
   * `maxKeys` keys or exceptions.
   * @param {number} maxKeys keys @param {number} [maxRanges]
   * @returns {{keys: Key[], ranges: Array<[number, number]>} | null}
   */
  toKeysAndRanges(maxKeys, maxRanges = 0) {
    const longest = this.ranges.toSorted((a, b) => b[1] - b[0] - (a[1] - a[0]));
    const keys = [...this.keys];
    for (const [lo, hi] of longest.slice(maxRanges)) {
      if (keys.length + hi - lo >= maxKeys) return null;
      for (let key = lo; key <= hi; key += 1) keys.push(key);
    }
    if (keys.length > maxKeys) return null;
    const inOrder = longest.slice(0, maxRanges).toSorted((a, b) => a[0] - b[0]);
    return { keys: keys.toSorted((a, b) => (a < b ? -1 : 1)), ranges: inOrder };
  }

  _changed() {
    this.version.update((n) => n + 1);
  }
}

/** @param {number} lo @param {number} hi @param {number} key @returns {Array<[number, number]>} */
function removeFromRange(lo, hi, key) {
  /** @type {Array<[number, number]>} */
  const rest = [[lo, key - 1], [key + 1, hi]];
  return rest.filter(([a, b]) => a <= b);
}

/** @param {Array<[number, number]>} ranges @returns {Array<[number, number]>} */
function mergeRanges(ranges) {
  /** @type {Array<[number, number]>} */
  const found = [];
  for (const [lo, hi] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last !== undefined && lo <= last[1] + 1) last[1] = Math.max(last[1], hi);
    else found.push([lo, hi]);
  }
  return found;
}
