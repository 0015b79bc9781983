// @ts-check
/**
 * Rows for a grid, loaded when they become visible and evicted when they are far away.
 *
 * An `IndexedRowSource` has random access: its rows are numbered without gaps. A `CursorRowSource` loads page after page,
 * and remembers each cursor, so that an evicted page can be loaded again.
 */
import { isAbortError } from "../core/api.js";
import { signal } from "../core/signal.js";

const BLOCK_SIZE = 200;
const MAX_BLOCKS = 30; // 6,000 rows
const LOAD_THROTTLE_MS = 60; // while the user drags the scrollbar, not every position is loaded

/** @typedef {{rows: any[] | null, error: Error | null, abort: AbortController | null, isStale: boolean, lastUsed: number}} Block stale: to be reloaded after the current request */
/** @typedef {"there" | "waiting" | "failed" | "none"} RowState */

class RowSource {
  constructor() {
    /** Increases when there is something new to show. */
    this.version = signal(0);
    /** @type {Map<number, Block>} */
    this.blocks = new Map();
    this.useCounter = 0;
    /** @type {[number, number]} */
    this.visibleRange = [0, 0];
    this.timer = 0;
  }

  /** Sets the visible rows, and loads what is missing. @param {number} first @param {number} last exclusive */
  setVisibleRange(first, last) {
    this.visibleRange = [first, last];
    if (this.timer) return;
    this._loadVisible();
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this._loadVisible();
    }, LOAD_THROTTLE_MS);
  }

  /** Override: loads the missing rows of the visible range. */
  _loadVisible() {}

  /** @param {number} number @param {(signal: AbortSignal) => Promise<any[]>} request */
  async _fetchBlock(number, request) {
    const block = this.blocks.get(number) ?? { rows: null, error: null, abort: null, isStale: false, lastUsed: 0 };
    this.blocks.set(number, block);
    block.error = null;
    const controller = (block.abort = new AbortController());
    try {
      const rows = await request(controller.signal);
      if (controller.signal.aborted) return;
      block.rows = rows;
    } catch (error) {
      if (controller.signal.aborted || isAbortError(error)) return;
      block.error = /** @type {Error} */ (error);
    } finally {
      if (block.abort === controller) block.abort = null;
    }
    if (block.isStale && this.blocks.get(number) === block) {
      block.isStale = false;
      this._requestBlock(number);
    }
    this.notify();
  }

  /** Override: requests a block. @param {number} _number */
  _requestBlock(_number) {}

  /**
   * Reloads a block. A running request is not aborted, because frequent reloads would then never finish; it is repeated
   * afterwards instead.
   * @param {number} number
   */
  _refetchBlock(number) {
    const block = this.blocks.get(number);
    if (block?.abort) block.isStale = true;
    else this._requestBlock(number);
  }

  /** Retries failed blocks, after the user has signed in again. */
  retryFailed() {
    let hasFailed = false;
    for (const [number, block] of this.blocks) {
      if (block.error === null) continue;
      if (block.rows === null) this.blocks.delete(number);
      else block.error = null;
      hasFailed = true;
    }
    if (!hasFailed) return;
    this._loadVisible();
    this.notify();
  }

  /** Updates one row in place. @param {(row: any) => boolean} isRow @param {Record<string, any>} fields */
  updateRow(isRow, fields) {
    for (const { rows } of this.blocks.values()) {
      const at = rows?.findIndex((one) => one !== undefined && isRow(one)) ?? -1;
      if (rows && at >= 0) rows[at] = { ...rows[at], ...fields };
    }
    this.notify();
  }

  notify() {
    this.version.update((n) => n + 1);
  }

  /** Evicts the least recently used blocks. */
  _evictBlocks() {
    this.useCounter += 1;
    const loaded = [...this.blocks].filter(([, block]) => block.rows !== null);
    if (loaded.length <= MAX_BLOCKS) return;
    for (const [number, block] of loaded.toSorted((a, b) => a[1].lastUsed - b[1].lastUsed).slice(0, loaded.length - MAX_BLOCKS)) {
      if (!this._isVisible(number)) this._evictBlock(number, block);
    }
  }

  /** @param {number} number @param {Block} _block */
  _evictBlock(number, _block) {
    this.blocks.delete(number);
  }

  /** @param {number} _number */
  _isVisible(_number) {
    return false;
  }

  stop() {
    window.clearTimeout(this.timer);
    for (const block of this.blocks.values()) block.abort?.abort();
  }
}

export class IndexedRowSource extends RowSource {
  /**
   * @param {number} total
   * @param {(first: number, size: number, signal: AbortSignal) => Promise<any[]>} fetchRows
   */
  constructor(total, fetchRows) {
    super();
    this.total = total;
    this.fetchRows = fetchRows;
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
    const last = Math.floor(Math.max(0, this.total - 1) / BLOCK_SIZE);
    this.total = total;
    const block = this.blocks.get(last);
    if (block?.rows && block.rows.length < BLOCK_SIZE) this.blocks.delete(last);
    this.notify();
  }

  /** @param {number} index */
  rowAt(index) {
    return this.blocks.get(Math.floor(index / BLOCK_SIZE))?.rows?.[index % BLOCK_SIZE];
  }

  /** @param {number} index @returns {RowState} */
  stateAt(index) {
    const block = this.blocks.get(Math.floor(index / BLOCK_SIZE));
    if (block?.rows) return block.rows[index % BLOCK_SIZE] === undefined ? "none" : "there";
    return block?.error ? "failed" : "waiting";
  }

  /** @param {number} index @returns {[number, number, Error | null]} first and last row of the block, and its error */
  blockOf(index) {
    const number = Math.floor(index / BLOCK_SIZE);
    return [number * BLOCK_SIZE, Math.min(this.total, (number + 1) * BLOCK_SIZE) - 1, this.blocks.get(number)?.error ?? null];
  }

  /** @param {number} index */
  retry(index) {
    this._requestBlock(Math.floor(index / BLOCK_SIZE));
    this.notify();
  }

  /** Reloads the visible rows; old rows stay until the response arrives. */
  refresh() {
    for (const [number, block] of this.blocks) {
      if (this._isVisible(number)) this._refetchBlock(number);
      else {
        block.abort?.abort();
        this.blocks.delete(number);
      }
    }
    this._loadVisible();
  }

  /** @override */
  _loadVisible() {
    const [first, last] = this.visibleRange;
    for (const [number, block] of this.blocks) {
      if (block.abort !== null && !this._isVisible(number)) {
        block.abort.abort();
        block.abort = null;
        if (block.rows === null) this.blocks.delete(number);
      }
    }
    for (let number = Math.floor(first / BLOCK_SIZE); number * BLOCK_SIZE < last; number += 1) {
      const block = this.blocks.get(number);
      if (block) block.lastUsed = this.useCounter;
      if (!block || (block.rows === null && block.abort === null && block.error === null)) this._requestBlock(number);
    }
    this._evictBlocks();
  }

  /** @override @param {number} number */
  _isVisible(number) {
    return number * BLOCK_SIZE < this.visibleRange[1] && (number + 1) * BLOCK_SIZE > this.visibleRange[0];
  }

  /** @override @param {number} number */
  _requestBlock(number) {
    this._fetchBlock(number, (signal) => this.fetchRows(number * BLOCK_SIZE, BLOCK_SIZE, signal));
  }
}

/** @typedef {{rows: any[], next: string | null}} Page */

export class CursorRowSource extends RowSource {
  /** @param {(after: string | null, size: number, signal: AbortSignal) => Promise<Page>} fetchPage */
  constructor(fetchPage) {
    super();
    this.fetchPage = fetchPage;
    this.isDense = false;
    this.isComplete = false;
    /** @type {Array<{after: string | null, start: number, n: number}>} */
    this.pages = [];
    /** @type {string | null} */
    this.next = null;
    this.isFetching = false;
    this.generation = 0; // increases on every restart, to drop responses to earlier requests
  }

  get loaded() {
    const last = this.pages.at(-1);
    return last === undefined ? 0 : last.start + last.n;
  }

  /** Includes a placeholder line at the end while there is more to load. */
  get length() {
    return this.loaded + (this.isComplete ? 0 : 1);
  }

  /** @param {number} index */
  _pageAt(index) {
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
    const number = this._pageAt(index);
    const page = this.pages[number];
    return page && this.blocks.get(number)?.rows?.[index - page.start];
  }

  /** @param {number} index @returns {RowState} */
  stateAt(index) {
    const block = this.blocks.get(this._pageAt(index));
    if (this.rowAt(index) !== undefined) return "there";
    if (block?.error) return "failed";
    return block?.rows ? "none" : "waiting";
  }

  /** @param {number} index @returns {[number, number, Error | null]} */
  blockOf(index) {
    const number = this._pageAt(index);
    const page = this.pages[number] ?? { start: this.loaded, n: BLOCK_SIZE };
    return [page.start, page.start + page.n - 1, this.blocks.get(number)?.error ?? null];
  }

  /** @param {number} index */
  retry(index) {
    const number = this._pageAt(index);
    const block = this.blocks.get(number);
    if (block) block.error = null;
    if (number < this.pages.length) this._requestBlock(number); // a known page that was evicted
    else this._loadVisible();
    this.notify();
  }

  /** Reloads the same pages in place. For lists whose rows keep their position. */
  reload() {
    for (const number of this.blocks.keys()) {
      if (number >= this.pages.length) continue;
      if (this._isVisible(number)) this._refetchBlock(number);
      else this.blocks.delete(number);
    }
    if (this.pages.length === 0) this.refresh();
  }

  /** Starts at the first page again, as changes may affect any position. */
  refresh() {
    this.stop();
    this.timer = 0;
    this.blocks.clear();
    this.pages = [];
    this.next = null;
    this.isComplete = false;
    this.isFetching = false;
    this.generation += 1;
    this._loadVisible();
    this.notify();
  }

  /** @override */
  _loadVisible() {
    const [first, last] = this.visibleRange;
    for (let number = this._pageAt(first); number < this.pages.length && this.pages[number].start < last; number += 1) {
      const block = this.blocks.get(number);
      if (block) block.lastUsed = this.useCounter;
      if (!block) this._requestBlock(number);
    }
    const ahead = this.blocks.get(this.pages.length);
    if (!this.isComplete && !this.isFetching && !ahead?.error && last > this.loaded - BLOCK_SIZE / 2) this._fetchNextPage();
    this._evictBlocks();
  }

  async _fetchNextPage() {
    this.isFetching = true;
    const walk = this.generation;
    const number = this.pages.length;
    const after = this.next;
    await this._fetchBlock(number, async (signal) => {
      const page = await this.fetchPage(after, BLOCK_SIZE, signal);
      if (signal.aborted) return [];
      this.pages.push({ after, start: this.loaded, n: page.rows.length });
      this.next = page.next;
      this.isComplete = page.next === null;
      return page.rows;
    });
    if (walk !== this.generation) return;
    this.isFetching = false;
    if (this.pages.length > number) this._loadVisible();
  }

  /** @override @param {number} number */
  _requestBlock(number) {
    const page = this.pages[number];
    this._fetchBlock(number, async (signal) => (await this.fetchPage(page.after, Math.max(1, page.n), signal)).rows);
  }

  /** @override @param {number} number */
  _isVisible(number) {
    const page = this.pages[number];
    return page !== undefined && page.start < this.visibleRange[1] && page.start + page.n > this.visibleRange[0];
  }
}
