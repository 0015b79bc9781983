// @ts-check
/**
 * What is selected: a predicate, apart from the rows that happen to be shown. Either some keys, and ranges of them
 * where keys are numbers without holes; or everything that matches, but some.
 */
import { signal } from "../core/signal.js";

/** @typedef {string | number} Key */

export class Selection {
  constructor() {
    this.isAll = false;
    /** Chosen; of all that match, not chosen. @type {Set<Key>} */
    this.keys = new Set();
    /** Both ends belong to it; apart from one another, in order. @type {Array<[number, number]>} */
    this.ranges = [];
    /** Counts up with every change. */
    this.version = signal(0);
  }

  /** @param {Key} key */
  has(key) {
    if (this.isAll) return !this.keys.has(key);
    return this.keys.has(key) || (typeof key === "number" && this.ranges.some(([lo, hi]) => lo <= key && key <= hi));
  }

  /** @param {number} matching how many match in all */
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
      this.ranges = this.ranges.flatMap(([lo, hi]) => (key < lo || key > hi ? [[lo, hi]] : cutOut(lo, hi, key)));
    }
    this._changed();
  }

  /** @param {number} a @param {number} b */
  addRange(a, b) {
    const [lo, hi] = [Math.min(a, b), Math.max(a, b)];
    if (this.isAll) for (const key of this.keys) if (typeof key === "number" && lo <= key && key <= hi) this.keys.delete(key);
    if (!this.isAll) {
      for (const key of this.keys) if (typeof key === "number" && lo <= key && key <= hi) this.keys.delete(key);
      this.ranges = merged([...this.ranges, [lo, hi]]);
    }
    this._changed();
  }

  /** What is selected now, to come back to. @returns {{isAll: boolean, keys: Set<Key>, ranges: Array<[number, number]>}} */
  copy() {
    return { isAll: this.isAll, keys: new Set(this.keys), ranges: this.ranges };
  }

  /** @param {ReturnType<Selection["copy"]>} copy */
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

  /** Everything that matches the filter, however much that is. */
  all() {
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

  /** Every key of some, in order; null if they are more than `most`, or all that match. @param {number} most @returns {Key[] | null} */
  list(most) {
    return this.isAll ? null : (this.parts(most)?.keys ?? null);
  }

  /**
   * As single keys and as so many ranges, the longest of them; the others are told one by one. Null if that makes more than
   * `most` keys, or of all that match leaves out more.
   * @param {number} most keys @param {number} [mostRanges]
   * @returns {{keys: Key[], ranges: Array<[number, number]>} | null}
   */
  parts(most, mostRanges = 0) {
    const longest = [...this.ranges].sort((a, b) => b[1] - b[0] - (a[1] - a[0]));
    const keys = [...this.keys];
    for (const [lo, hi] of longest.slice(mostRanges)) {
      if (keys.length + hi - lo >= most) return null;
      for (let key = lo; key <= hi; key += 1) keys.push(key);
    }
    if (keys.length > most) return null;
    const inOrder = longest.slice(0, mostRanges).sort((a, b) => a[0] - b[0]);
    return { keys: keys.sort((a, b) => (a < b ? -1 : 1)), ranges: inOrder };
  }

  _changed() {
    this.version.update((n) => n + 1);
  }
}

/** @param {number} lo @param {number} hi @param {number} key @returns {Array<[number, number]>} */
function cutOut(lo, hi, key) {
  /** @type {Array<[number, number]>} */
  const rest = [[lo, key - 1], [key + 1, hi]];
  return rest.filter(([a, b]) => a <= b);
}

/** @param {Array<[number, number]>} ranges @returns {Array<[number, number]>} */
function merged(ranges) {
  /** @type {Array<[number, number]>} */
  const found = [];
  for (const [lo, hi] of ranges.sort((a, b) => a[0] - b[0])) {
    const last = found.at(-1);
    if (last !== undefined && lo <= last[1] + 1) last[1] = Math.max(last[1], hi);
    else found.push([lo, hi]);
  }
  return found;
}
