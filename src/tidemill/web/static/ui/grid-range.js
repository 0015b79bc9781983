// @ts-check
/** Ranges of rows in a grid: from where somebody began to where they are. */
import { count } from "../core/format.js";
import { toast } from "./toast.js";

/** @typedef {import("./source.js").SeqSource | import("./source.js").CursorSource} Source */

export class GridRange {
  /** @param {Source} source @param {import("./selection.js").Selection | undefined} selection @param {(row: any) => string | number} keyOf */
  constructor(source, selection, keyOf) {
    this.source = source;
    this.selection = selection;
    this.keyOf = keyOf;
    this.anchor = 0;
    /** What was reached from there so far. @type {[number, number] | null} */
    this.reached = null;
  }

  /** @param {number} row */
  begin(row) {
    this.anchor = row;
    this.reached = null;
  }

  /** To this row. Whoever comes back gives up what the same range had reached before. @param {number} row */
  extend(row) {
    const [lo, hi] = [Math.min(this.anchor, row), Math.max(this.anchor, row)];
    const [first, last] = this.reached ?? [lo, hi];
    if (first < lo) this.giveUp(first, lo - 1);
    if (hi < last) this.giveUp(hi + 1, last);
    this.reached = [lo, hi];
    if (this.source.isDense) this.selection?.addRange(lo, hi);
    else this.select(lo, hi);
  }

  /** @param {number} lo @param {number} hi */
  giveUp(lo, hi) {
    if (this.source.isDense) this.selection?.removeRange(lo, hi);
    else for (const key of this.keys(lo, hi)) this.selection?.remove(key);
  }

  /** Of rows that have no numbers of their own, those that are here; and it is said if some are not. @param {number} lo @param {number} hi */
  select(lo, hi) {
    const keys = this.keys(lo, hi);
    const missing = hi - lo + 1 - keys.length;
    this.selection?.addMany(keys);
    if (missing) toast(`${count(missing)} rows between are not loaded any more, and were not selected; all that match can be`, "bad");
  }

  /** @param {number} lo @param {number} hi */
  keys(lo, hi) {
    return Array.from({ length: Math.max(0, hi - lo + 1) }, (_, n) => this.source.rowAt(lo + n)).filter(Boolean).map(this.keyOf);
  }
}
