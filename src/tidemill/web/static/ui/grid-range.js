// @ts-check
/** Ranges of rows in a grid: from where somebody began to where they are. */
import { count } from "../core/format.js";
import { batch } from "../core/signal.js";
import { toast } from "./toast.js";

/** @typedef {import("./source.js").SeqSource | import("./source.js").CursorSource} Source */

export class GridRange {
  /** @param {Source} source @param {import("./selection.js").Selection | undefined} selection @param {(row: any) => string | number} keyOf */
  constructor(source, selection, keyOf) {
    this.source = source;
    this.selection = selection;
    this.keyOf = keyOf;
    this.anchor = 0;
    /** What was selected before this range. @type {ReturnType<import("./selection.js").Selection["copy"]> | null} */
    this.before = null;
    this.left = 0; // the version of the selection that this range has made
    /** Keys that this range has reached, by row: they count also when their rows are forgotten. @type {Map<number, string | number>} */
    this.known = new Map();
    this.isTold = false;
  }

  /** @param {number} row */
  begin(row) {
    this.anchor = row;
    this.before = null;
    this.known.clear();
    this.isTold = false;
  }

  /** To this row. Whoever comes back gives up what the same range had reached, and nothing that was selected before. @param {number} row */
  extend(row) {
    const { selection, source } = this;
    if (!selection || source.loaded === 0) return;
    const [from, to] = [this.anchor, row].map((one) => Math.min(one, source.loaded - 1)); // the line that says that more is coming is no row
    const [lo, hi] = [Math.min(from, to), Math.max(from, to)];
    const before = this.before === null || selection.version.peek() !== this.left ? selection.copy() : this.before;
    this.before = before;
    batch(() => {
      selection.restore(before);
      if (source.isDense) selection.addRange(lo, hi);
      else this.select(lo, hi);
    });
    this.left = selection.version.peek();
  }

  /** Of rows that have no numbers of their own, those that are here; and it is said, once, if some are not. @param {number} lo @param {number} hi */
  select(lo, hi) {
    const keys = this.keys(lo, hi);
    const missing = hi - lo + 1 - keys.length;
    this.selection?.addMany(keys);
    if (missing && !this.isTold) toast(`${count(missing)} rows between are not loaded any more, and were not selected; all that match can be`, "bad");
    this.isTold ||= missing > 0;
  }

  /** @param {number} lo @param {number} hi */
  keys(lo, hi) {
    const found = [];
    for (let at = lo; at <= hi; at += 1) {
      const row = this.source.rowAt(at);
      const key = row === undefined ? this.known.get(at) : this.keyOf(row);
      if (key === undefined) continue;
      this.known.set(at, key);
      found.push(key);
    }
    return found;
  }
}
