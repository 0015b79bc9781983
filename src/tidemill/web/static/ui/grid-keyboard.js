// @ts-check
/** Keyboard control of a grid, following the ARIA grid pattern. */

/**
 * @typedef {object} GridKeyboard
 * @property {{row: number, column: number}} active the focused cell
 * @property {number} columns the number of columns
 * @property {number} last the index of the last row
 * @property {number} page the number of rows in view
 * @property {boolean} canSelect whether the grid has a selection
 * @property {(row: number, column?: number, options?: {extend?: boolean}) => void} move focuses a cell
 * @property {() => void} open opens the active row
 * @property {() => void} toggle selects or deselects the active row
 * @property {() => void} selectLoaded selects every row that is loaded
 * @property {() => boolean} clear clears the selection; false if it was empty
 */

/** @param {KeyboardEvent} event @param {GridKeyboard} grid @returns {boolean} whether the key was handled */
export function handleGridKey(event, grid) {
  if (/** @type {HTMLElement} */ (event.target).closest("button, a, select, textarea")) return false;
  const { row, column } = grid.active;
  const isWhole = event.ctrlKey || event.metaKey;
  const moveOptions = { extend: event.shiftKey && grid.canSelect };
  switch (event.key) {
    case "ArrowDown":
      return runKey(() => grid.move(isWhole ? grid.last : row + 1, column, moveOptions));
    case "ArrowUp":
      return runKey(() => grid.move(isWhole ? 0 : row - 1, column, moveOptions));
    case "PageDown":
      return runKey(() => grid.move(row + grid.page, column, moveOptions));
    case "PageUp":
      return runKey(() => grid.move(row - grid.page, column, moveOptions));
    case "ArrowRight":
      return runKey(() => grid.move(row, column + 1));
    case "ArrowLeft":
      return runKey(() => grid.move(row, column - 1));
    case "Home":
      return runKey(() => (isWhole ? grid.move(0, 0, moveOptions) : grid.move(row, 0)));
    case "End":
      return runKey(() => (isWhole ? grid.move(grid.last, grid.columns - 1, moveOptions) : grid.move(row, grid.columns - 1)));
    case "Enter":
      return runKey(grid.open);
    case " ":
      return grid.canSelect && runKey(grid.toggle);
    case "a":
      return isWhole && grid.canSelect && runKey(grid.selectLoaded);
    case "Escape":
      return grid.clear();
    default:
      return false;
  }
}

/** @param {() => void} run */
function runKey(run) {
  run();
  return true;
}
