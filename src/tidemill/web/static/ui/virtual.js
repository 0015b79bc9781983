// @ts-check
/**
 * Where a list of any length is scrolled to. Browsers cap how tall an element may be, so the bar stands for a shorter
 * way than the list is: small steps are taken as they are, large ones in proportion, and the bar is set right when
 * nobody moves it. Pure: it knows no element.
 */

export const TALLEST = 8_000_000;

export class VirtualScroll {
  /** @param {number} rowHeight */
  constructor(rowHeight) {
    this.rowHeight = rowHeight;
    this.rows = 0;
    this.view = 0;
    this.top = 0; // of what is shown, in the list
    this.bar = 0; // where the browser thinks it is scrolled to
  }

  /** @param {number} rows @param {number} view the height of what is shown */
  resize(rows, view) {
    this.rows = rows;
    this.view = view;
    this.top = Math.min(this.top, this.longest);
  }

  /** How tall the list would be. */
  get height() {
    return this.rows * this.rowHeight;
  }

  /** How tall the element is. */
  get space() {
    return Math.min(TALLEST, this.height);
  }

  get longest() {
    return Math.max(0, this.height - this.view);
  }

  get longestBar() {
    return Math.max(0, this.space - this.view);
  }

  /** Where the bar should be. */
  get rightBar() {
    return this.longest === 0 ? 0 : (this.top / this.longest) * this.longestBar;
  }

  /**
   * The browser has scrolled.
   * @param {number} bar
   * @returns {boolean} whether the bar has to be set right at once, for it is at an end and the list is not
   */
  scrolled(bar) {
    const step = bar - this.bar;
    this.bar = bar;
    if (this.space === this.height) {
      this.top = this._within(bar);
      return false;
    }
    const isSmall = Math.abs(step) < 2 * this.view;
    this.top = this._within(isSmall ? this.top + step : (bar / this.longestBar) * this.longest);
    const isAtEnd = bar <= 0 || bar >= this.longestBar;
    return isSmall && isAtEnd && this.top > 0 && this.top < this.longest;
  }

  /** Show a place of the list; the bar has to be set. @param {number} top */
  jump(top) {
    this.top = this._within(top);
  }

  /** As little as needed to have a row in sight. @param {number} row */
  reveal(row) {
    const at = row * this.rowHeight;
    if (at < this.top) this.jump(at);
    else if (at + this.rowHeight > this.top + this.view) this.jump(at + this.rowHeight - this.view);
  }

  /** The first row, and the one behind the last, that are in sight or nearly. @param {number} beside @returns {[number, number]} */
  window(beside) {
    const first = Math.max(0, Math.floor(this.top / this.rowHeight) - beside);
    const last = Math.min(this.rows, Math.ceil((this.top + this.view) / this.rowHeight) + beside);
    return [first, Math.max(first, last)];
  }

  /** @param {number} top */
  _within(top) {
    return Math.max(0, Math.min(this.longest, top));
  }
}
