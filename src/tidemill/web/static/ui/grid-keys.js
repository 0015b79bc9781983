// @ts-check
/** What keys do in a grid, as in every other grid. */

/**
 * @typedef {object} Keyboard
 * @property {{row: number, column: number}} active
 * @property {number} columns
 * @property {number} last
 * @property {number} page
 * @property {boolean} canSelect
 * @property {(row: number, column?: number, how?: {extend?: boolean}) => void} move
 * @property {() => void} open
 * @property {() => void} toggle
 * @property {() => void} selectLoaded
 * @property {() => boolean} clear
 */

/** @param {KeyboardEvent} event @param {Keyboard} grid @returns {boolean} whether the key was one of ours */
export function gridKeys(event, grid) {
  if (/** @type {HTMLElement} */ (event.target).closest("button, a, select, textarea")) return false;
  const { row, column } = grid.active;
  const isWhole = event.ctrlKey || event.metaKey;
  const how = { extend: event.shiftKey && grid.canSelect };
  switch (event.key) {
    case "ArrowDown":
      return does(() => grid.move(isWhole ? grid.last : row + 1, column, how));
    case "ArrowUp":
      return does(() => grid.move(isWhole ? 0 : row - 1, column, how));
    case "PageDown":
      return does(() => grid.move(row + grid.page, column, how));
    case "PageUp":
      return does(() => grid.move(row - grid.page, column, how));
    case "ArrowRight":
      return does(() => grid.move(row, column + 1));
    case "ArrowLeft":
      return does(() => grid.move(row, column - 1));
    case "Home":
      return does(() => (isWhole ? grid.move(0, 0, how) : grid.move(row, 0)));
    case "End":
      return does(() => (isWhole ? grid.move(grid.last, grid.columns - 1, how) : grid.move(row, grid.columns - 1)));
    case "Enter":
      return does(grid.open);
    case " ":
      return grid.canSelect && does(grid.toggle);
    case "a":
      return isWhole && grid.canSelect && does(grid.selectLoaded);
    case "Escape":
      return grid.clear();
    default:
      return false;
  }
}

/** @param {() => void} run */
function does(run) {
  run();
  return true;
}
