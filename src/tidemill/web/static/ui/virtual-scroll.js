// @ts-check
/**
 * The scroll position of a list of any length. Browsers limit the height of an element, so the scrollbar covers less than
 * the list: small steps move the list by the same distance, large ones in proportion, and the scrollbar is corrected
 * when it is idle. Independent of the DOM.
 */

const MAX_HEIGHT_PX = 8_000_000;

export class VirtualScroll {
  /** @param {number} rowHeight */
  constructor(rowHeight) {
    this.rowHeight = rowHeight;
    this.rows = 0;
    this.view = 0;
    this.top = 0; // the offset of the view in the list
    this.barTop = 0; // the scroll position of the element
  }

  /** @param {number} rows @param {number} view the height of the view */
  resize(rows, view) {
    this.rows = rows;
    this.view = view;
    this.top = Math.min(this.top, this.maxTop);
  }

  /** The height of the whole list. */
  get height() {
    return this.rows * this.rowHeight;
  }

  /** The height of the element. */
  get scrollHeight() {
    return Math.min(MAX_HEIGHT_PX, this.height);
  }

  get maxTop() {
    return Math.max(0, this.height - this.view);
  }

  get maxBarTop() {
    return Math.max(0, this.scrollHeight - this.view);
  }

  /** The position that the scrollbar should have. */
  get expectedBarTop() {
    return this.maxTop === 0 ? 0 : (this.top / this.maxTop) * this.maxBarTop;
  }

  /**
   * Handles a scroll event.
   * @param {number} bar
   * @returns {boolean} whether the scrollbar has to be corrected at once, because it is at its end and the list is not
   */
  scrolled(bar) {
    const step = bar - this.barTop;
    this.barTop = bar;
    if (this.scrollHeight === this.height) {
      this.top = this._clamp(bar);
      return false;
    }
    const isSmall = Math.abs(step) < 2 * this.view;
    this.top = this._clamp(isSmall ? this.top + step : (bar / this.maxBarTop) * this.maxTop);
    const isAtEnd = bar <= 0 || bar >= this.maxBarTop;
    return isSmall && isAtEnd && this.top > 0 && this.top < this.maxTop;
  }

  /** Scrolls the list to an offset; the caller has to sync the scrollbar. @param {number} top */
  scrollTo(top) {
    this.top = this._clamp(top);
  }

  /** Scrolls as little as needed to show a row. @param {number} row */
  reveal(row) {
    const at = row * this.rowHeight;
    if (at < this.top) this.scrollTo(at);
    else if (at + this.rowHeight > this.top + this.view) this.scrollTo(at + this.rowHeight - this.view);
  }

  /** The visible rows with some more on both sides: first, and last exclusive. @param {number} overscan @returns {[number, number]} */
  visibleRange(overscan) {
    const first = Math.max(0, Math.floor(this.top / this.rowHeight) - overscan);
    const last = Math.min(this.rows, Math.ceil((this.top + this.view) / this.rowHeight) + overscan);
    return [first, Math.max(first, last)];
  }

  /** @param {number} top */
  _clamp(top) {
    return Math.max(0, Math.min(this.maxTop, top));
  }
}
