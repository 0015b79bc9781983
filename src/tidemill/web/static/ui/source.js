// @ts-check
/**
 * Rows for a grid, loaded as they come into sight and forgotten when they are far from it.
 *
 * A `SeqSource` can begin anywhere: its rows are numbered without holes. A `CursorSource` goes from page to page, and
 * remembers where each began, so that one which was forgotten can be fetched again.
 */
import { isAbort } from "../core/api.js";
import { signal } from "../core/signal.js";

const BLOCK = 200;
const KEPT = 30; // blocks: some thousand rows
const STEP_MS = 60; // while somebody drags the bar, not every place they pass is fetched

/** @typedef {{rows: any[] | null, error: Error | null, abort: AbortController | null, isStale: boolean, seen: number}} Block stale: to be asked for again when the answer that is on its way is there */
/** @typedef {"there" | "waiting" | "failed" | "none"} RowState */

class Source {
  constructor() {
    /** Counts up when there is something new to show. */
    this.version = signal(0);
    /** @type {Map<number, Block>} */
    this.blocks = new Map();
    this.turn = 0;
    /** @type {[number, number]} */
    this.wanted = [0, 0];
    this.timer = 0;
  }

  /** These rows are in sight. @param {number} first @param {number} last behind the last */
  want(first, last) {
    this.wanted = [first, last];
    if (this.timer) return;
    this._load();
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this._load();
    }, STEP_MS);
  }

  /** To be overridden: start what is missing. */
  _load() {}

  /** @param {number} number @param {(signal: AbortSignal) => Promise<any[]>} ask */
  async _fetch(number, ask) {
    const block = this.blocks.get(number) ?? { rows: null, error: null, abort: null, isStale: false, seen: 0 };
    this.blocks.set(number, block);
    block.error = null;
    const mine = (block.abort = new AbortController());
    try {
      const rows = await ask(mine.signal);
      if (mine.signal.aborted) return;
      block.rows = rows;
    } catch (error) {
      if (mine.signal.aborted || isAbort(error)) return;
      block.error = /** @type {Error} */ (error);
    } finally {
      if (block.abort === mine) block.abort = null;
    }
    if (block.isStale && this.blocks.get(number) === block) {
      block.isStale = false;
      this._start(number);
    }
    this.changed();
  }

  /** To be overridden: ask for a block. @param {number} _number */
  _start(_number) {}

  /**
   * Ask for a block again. Of two answers the older might come last, and who breaks one off for the next, again and again,
   * has none: so the one that is on its way is waited for.
   * @param {number} number
   */
  _renew(number) {
    const block = this.blocks.get(number);
    if (block?.abort) block.isStale = true;
    else this._start(number);
  }

  /** What could not be loaded, once more: somebody has signed in again. */
  retryFailed() {
    let hasFailed = false;
    for (const [number, block] of this.blocks) {
      if (block.error === null) continue;
      if (block.rows === null) this.blocks.delete(number);
      else block.error = null;
      hasFailed = true;
    }
    if (!hasFailed) return;
    this._load();
    this.changed();
  }

  /** One row as it is now, where it stands: nothing else moves. @param {(row: any) => boolean} isIt @param {Record<string, any>} now */
  patch(isIt, now) {
    for (const { rows } of this.blocks.values()) {
      const at = rows?.findIndex((one) => one !== undefined && isIt(one)) ?? -1;
      if (rows && at >= 0) rows[at] = { ...rows[at], ...now };
    }
    this.changed();
  }

  changed() {
    this.version.update((n) => n + 1);
  }

  /** Forget blocks that were in sight longest ago. */
  _forget() {
    this.turn += 1;
    const loaded = [...this.blocks].filter(([, block]) => block.rows !== null);
    if (loaded.length <= KEPT) return;
    for (const [number, block] of loaded.sort((a, b) => a[1].seen - b[1].seen).slice(0, loaded.length - KEPT)) {
      if (!this._isWanted(number)) this._drop(number, block);
    }
  }

  /** @param {number} number @param {Block} _block */
  _drop(number, _block) {
    this.blocks.delete(number);
  }

  /** @param {number} _number */
  _isWanted(_number) {
    return false;
  }

  stop() {
    window.clearTimeout(this.timer);
    for (const block of this.blocks.values()) block.abort?.abort();
  }
}

export class SeqSource extends Source {
  /**
   * @param {number} total
   * @param {(first: number, size: number, signal: AbortSignal) => Promise<any[]>} ask
   */
  constructor(total, ask) {
    super();
    this.total = total;
    this.ask = ask;
    this.isDense = true;
    this.isComplete = true;
  }

  get length() {
    return this.total;
  }

  get loaded() {
    return this.total;
  }

  /** @param {number} total */
  resize(total) {
    if (total === this.total) return;
    const last = Math.floor(Math.max(0, this.total - 1) / BLOCK);
    this.total = total;
    const block = this.blocks.get(last);
    if (block?.rows && block.rows.length < BLOCK) this.blocks.delete(last);
    this.changed();
  }

  /** @param {number} index */
  rowAt(index) {
    return this.blocks.get(Math.floor(index / BLOCK))?.rows?.[index % BLOCK];
  }

  /** @param {number} index @returns {RowState} */
  stateAt(index) {
    const block = this.blocks.get(Math.floor(index / BLOCK));
    if (block?.rows) return block.rows[index % BLOCK] === undefined ? "none" : "there";
    return block?.error ? "failed" : "waiting";
  }

  /** @param {number} index @returns {[number, number, Error | null]} first and last row of its block */
  blockOf(index) {
    const number = Math.floor(index / BLOCK);
    return [number * BLOCK, Math.min(this.total, (number + 1) * BLOCK) - 1, this.blocks.get(number)?.error ?? null];
  }

  /** @param {number} index */
  retry(index) {
    this._start(Math.floor(index / BLOCK));
    this.changed();
  }

  /** Fetch what is in sight again; what is there stays until the answer comes. */
  refresh() {
    for (const [number, block] of this.blocks) {
      if (this._isWanted(number)) this._renew(number);
      else {
        block.abort?.abort();
        this.blocks.delete(number);
      }
    }
    this._load();
  }

  _load() {
    const [first, last] = this.wanted;
    for (const [number, block] of this.blocks) {
      if (block.abort !== null && !this._isWanted(number)) {
        block.abort.abort();
        block.abort = null;
        if (block.rows === null) this.blocks.delete(number);
      }
    }
    for (let number = Math.floor(first / BLOCK); number * BLOCK < last; number += 1) {
      const block = this.blocks.get(number);
      if (block) block.seen = this.turn;
      if (!block || (block.rows === null && block.abort === null && block.error === null)) this._start(number);
    }
    this._forget();
  }

  /** @param {number} number */
  _isWanted(number) {
    return number * BLOCK < this.wanted[1] && (number + 1) * BLOCK > this.wanted[0];
  }

  /** @param {number} number */
  _start(number) {
    this._fetch(number, (signal) => this.ask(number * BLOCK, BLOCK, signal));
  }
}

/** @typedef {{rows: any[], next: string | null}} Page */

export class CursorSource extends Source {
  /** @param {(after: string | null, size: number, signal: AbortSignal) => Promise<Page>} ask */
  constructor(ask) {
    super();
    this.ask = ask;
    this.isDense = false;
    this.isComplete = false;
    /** @type {Array<{after: string | null, start: number, n: number}>} */
    this.pages = [];
    /** @type {string | null} */
    this.next = null;
    this.isAsking = false;
    this.walk = 0; // counts up when it begins anew: answers to an older one are too late
  }

  get loaded() {
    const last = this.pages.at(-1);
    return last === undefined ? 0 : last.start + last.n;
  }

  /** With a line at the end that says that more is coming, or why not. */
  get length() {
    return this.loaded + (this.isComplete ? 0 : 1);
  }

  /** @param {number} index */
  _page(index) {
    let [lo, hi] = [0, this.pages.length - 1];
    while (lo < hi) {
      const middle = (lo + hi + 1) >> 1;
      if (this.pages[middle].start <= index) lo = middle;
      else hi = middle - 1;
    }
    return index < this.loaded ? lo : this.pages.length;
  }

  /** @param {number} index */
  rowAt(index) {
    const number = this._page(index);
    const page = this.pages[number];
    return page && this.blocks.get(number)?.rows?.[index - page.start];
  }

  /** @param {number} index @returns {RowState} */
  stateAt(index) {
    const block = this.blocks.get(this._page(index));
    if (this.rowAt(index) !== undefined) return "there";
    if (block?.error) return "failed";
    return block?.rows ? "none" : "waiting";
  }

  /** @param {number} index @returns {[number, number, Error | null]} */
  blockOf(index) {
    const number = this._page(index);
    const page = this.pages[number] ?? { start: this.loaded, n: BLOCK };
    return [page.start, page.start + page.n - 1, this.blocks.get(number)?.error ?? null];
  }

  /** @param {number} index */
  retry(index) {
    const number = this._page(index);
    const block = this.blocks.get(number);
    if (block) block.error = null;
    if (number < this.pages.length) this._start(number); // known, and forgotten since
    else this._load();
    this.changed();
  }

  /** The same pages again, in place: for lists whose rows stay where they are, whatever becomes of them. */
  reload() {
    for (const number of [...this.blocks.keys()]) {
      if (number >= this.pages.length) continue;
      if (this._isWanted(number)) this._renew(number);
      else this.blocks.delete(number);
    }
    if (this.pages.length === 0) this.refresh();
  }

  /** From the beginning: what has changed since may stand anywhere. */
  refresh() {
    this.stop();
    this.timer = 0;
    this.blocks.clear();
    this.pages = [];
    this.next = null;
    this.isComplete = false;
    this.isAsking = false;
    this.walk += 1;
    this._load();
    this.changed();
  }

  _load() {
    const [first, last] = this.wanted;
    for (let number = this._page(first); number < this.pages.length && this.pages[number].start < last; number += 1) {
      const block = this.blocks.get(number);
      if (block) block.seen = this.turn;
      if (!block) this._start(number);
    }
    const ahead = this.blocks.get(this.pages.length);
    if (!this.isComplete && !this.isAsking && !ahead?.error && last > this.loaded - BLOCK / 2) this._more();
    this._forget();
  }

  async _more() {
    this.isAsking = true;
    const walk = this.walk;
    const number = this.pages.length;
    const after = this.next;
    await this._fetch(number, async (signal) => {
      const page = await this.ask(after, BLOCK, signal);
      if (signal.aborted) return [];
      this.pages.push({ after, start: this.loaded, n: page.rows.length });
      this.next = page.next;
      this.isComplete = page.next === null;
      return page.rows;
    });
    if (walk !== this.walk) return;
    this.isAsking = false;
    if (this.pages.length > number) this._load();
  }

  /** @param {number} number */
  _start(number) {
    const page = this.pages[number];
    this._fetch(number, async (signal) => (await this.ask(page.after, Math.max(1, page.n), signal)).rows);
  }

  /** @param {number} number */
  _isWanted(number) {
    const page = this.pages[number];
    return page !== undefined && page.start < this.wanted[1] && page.start + page.n > this.wanted[0];
  }
}
