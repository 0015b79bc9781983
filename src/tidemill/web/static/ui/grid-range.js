// @ts-check
/** Range selection in a grid, from an anchor row to the current row. */
import { formatNumber } from "../core/format.js";
import { batch } from "../core/signal.js";
import { showToast } from "./toast.js";

/** @typedef {import("./row-source.js").IndexedRowSource | import("./row-source.js").CursorRowSource} Source */

export class GridRange {
  /** @param {Source} source @param {import("./selection.js").Selection | undefined} selection @param {(row: any) => string | number} keyOf */
  constructor(source, selection, keyOf) {
    this.source = source;
    this.selection = selection;
    this.keyOf = keyOf;
    this.anchor = 0;
    /** The selection before this range. @type {ReturnType<import("./selection.js").Selection["snapshot"]> | null} */
    this.before = null;
    this.appliedVersion = 0; // the version of the selection after this range was applied
    /** Keys in this range by row. They stay selected when their rows are evicted. @type {Map<number, string | number>} */
    this.knownKeys = new Map();
    this.hasWarned = false;
  }

  /** @param {number} row */
  start(row) {
    this.anchor = row;
    this.before = null;
    this.knownKeys.clear();
    this.hasWarned = false;
  }

  /** Extends the range to a row. Moving back deselects rows of this range, but not rows that were selected before. @param {number} row */
  extend(row) {
    const { selection, source } = this;
    if (!selection || source.loaded === 0) return;
    const [from, to] = [this.anchor, row].map((one) => Math.min(one, source.loaded - 1)); // the placeholder line at the end is not a row
    const [lo, hi] = [Math.min(from, to), Math.max(from, to)];
    const before = this.before === null || selection.version.peek() !== this.appliedVersion ? selection.snapshot() : this.before;
    this.before = before;
    batch(() => {
      selection.restore(before);
      if (source.isDense) selection.addRange(lo, hi);
      else this.select(lo, hi);
    });
    this.appliedVersion = selection.version.peek();
  }

  /** Selects the loaded rows of a source without row numbers, and warns once if rows are missing. @param {number} lo @param {number} hi */
  select(lo, hi) {
    const keys = this.keys(lo, hi);
    const missing = hi - lo + 1 - keys.length;
    this.selection?.addMany(keys);
    if (missing && !this.hasWarned) showToast(`${formatNumber(missing)} rows in this range are no longer loaded and were not selected. Select all matching rows to include them.`, "bad");
    this.hasWarned ||= missing > 0;
  }

  /** @param {number} lo @param {number} hi */
  keys(lo, hi) {
    const found = [];
    for (let at = lo; at <= hi; at += 1) {
      const row = this.source.rowAt(at);
      const key = row === undefined ? this.knownKeys.get(at) : this.keyOf(row);
      if (key === undefined) continue;
      this.knownKeys.set(at, key);
      found.push(key);
    }
    return found;
  }
}
