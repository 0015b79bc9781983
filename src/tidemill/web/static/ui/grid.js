// @ts-check
/**
 * A virtual grid: only visible rows are elements.
 *
 * The rows are in a sticky view, and are positioned by the scroll offset of the list. See virtual-scroll.js for offsets,
 * row-source.js for rows and selection.js for the selection.
 */
import { signInCount } from "../core/api.js";
import { h, listen, uniqueId } from "../core/dom.js";
import { formatNumber } from "../core/format.js";
import { effect, onCleanup, untracked } from "../core/signal.js";
import { editCell } from "./grid-cell-editor.js";
import { handleGridKey } from "./grid-keyboard.js";
import { GridRange } from "./grid-range.js";
import { icon } from "./icons.js";
import { VirtualScroll } from "./virtual-scroll.js";

const ROW_HEIGHT = 36;
const OVERSCAN_ROWS = 6;
const SCROLL_IDLE_MS = 160;

/**
 * @typedef {object} Column
 * @property {string} label of its header
 * @property {string} [width] as in CSS grid
 * @property {"right"} [align] left by default
 * @property {(cell: HTMLElement, row: any, index: number) => void} show renders the value into the cell
 * @property {import("./grid-cell-editor.js").CellEdit} [edit] a double click or Enter edits the cell, instead of `onOpen`
 */
/**
 * @typedef {object} GridOptions
 * @property {string} label for screen readers
 * @property {import("./row-source.js").IndexedRowSource | import("./row-source.js").CursorRowSource} source of the rows
 * @property {Column[]} columns in the order they are shown
 * @property {(row: any) => string | number} keyOf the key of a row in the selection
 * @property {(row: any) => string} nameOf for screen readers: "row 41,207"
 * @property {import("./selection.js").Selection} [selection] without one, rows cannot be selected
 * @property {(row: any, index: number) => void} [onOpen] called on a click or Enter
 * @property {HTMLElement} [footer] shown below the rows
 * @property {() => HTMLElement} [emptyContent] shown instead of the grid when there are no rows
 */
/** @typedef {{element: HTMLElement, goTo: (index: number, focus?: boolean) => void, refresh: () => void, active: () => number, focus: () => void}} Grid */

/** @param {GridOptions} options @returns {Grid} */
export function createGrid(options) {
  const { source, selection } = options;
  const scroll = new VirtualScroll(ROW_HEIGHT);
  const columns = selection ? [checkColumn(), ...options.columns] : options.columns;
  const template = columns.map((one) => one.width ?? "minmax(8rem, 1fr)").join(" ");
  const id = uniqueId("grid");
  /** @type {{row: number, column: number}} */
  const active = { row: 0, column: 0 };
  const range = new GridRange(source, selection, options.keyOf);
  let hasFocus = false;
  /** The cell that can be reached with Tab. @type {HTMLElement | null} */
  let tabStop = null;
  /** @type {import("./grid-cell-editor.js").CellEditor | null} */
  let editor = null;
  let frame = 0;
  let idle = 0;
  /** @type {HTMLElement[]} */
  const pool = [];

  const head = h("div", { class: "grid-line grid-head", role: "row", "aria-rowindex": "1" }, columns.map((one, n) => h("div", { role: "columnheader", "aria-colindex": String(n + 1), class: one.align ?? null, title: one.label }, one.label || h("span", { class: "unseen" }, "Selected"))));
  const rows = h("div", { class: "grid-rows", role: "rowgroup" });
  const view = h("div", { class: "grid-view", style: { "--grid-columns": template } }, h("div", { role: "rowgroup" }, head), rows);
  const spacer = h("div", { class: "grid-tall", role: "presentation" }, view);
  const box = h("div", { class: "grid-scroll", id, role: "grid", "aria-label": options.label, "aria-colcount": String(columns.length), "aria-multiselectable": selection ? "true" : null, tabindex: "0" }, spacer);
  const emptyBox = h("div", { hidden: true });
  const element = h("div", { class: "grid" }, box, emptyBox, options.footer ?? null);

  /** @returns {Column} */
  function checkColumn() {
    return {
      label: "",
      width: "2.75rem",
      show(cell, row) {
        let input = /** @type {HTMLInputElement | null} */ (cell.querySelector("input"));
        if (input === null) {
          input = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", tabindex: "-1" }));
          cell.className = "check";
          cell.replaceChildren(input);
        }
        input.checked = selection?.has(options.keyOf(row)) ?? false;
        input.setAttribute("aria-label", `Select ${options.nameOf(row)}`);
      },
    };
  }

  function measure() {
    const height = box.clientHeight;
    view.style.setProperty("height", `${height}px`);
    scroll.resize(source.length, Math.max(ROW_HEIGHT, height - ROW_HEIGHT));
    spacer.style.setProperty("height", `${scroll.scrollHeight + ROW_HEIGHT}px`);
    box.setAttribute("aria-rowcount", source.isComplete ? String(source.length + 1) : "-1");
    const isBlank = source.isComplete && source.length === 0;
    if (isBlank && emptyBox.childElementCount === 0 && options.emptyContent) emptyBox.replaceChildren(options.emptyContent());
    emptyBox.hidden = !isBlank || !options.emptyContent;
    box.hidden = isBlank && Boolean(options.emptyContent);
  }

  function draw() {
    frame = 0;
    const hadFocus = hasFocus; // hiding a cell removes its focus
    const [first, last] = scroll.visibleRange(OVERSCAN_ROWS);
    while (pool.length < last - first) pool.push(createLine());
    const used = new Set();
    for (let index = first; index < last; index += 1) {
      const line = pool[index % pool.length];
      used.add(line);
      if (!line.isConnected) rows.append(line);
      line.hidden = false;
      line.style.setProperty("transform", `translateY(${Math.round(index * ROW_HEIGHT - scroll.top)}px)`);
      fillLine(line, index);
    }
    for (const line of pool) if (!used.has(line)) line.hidden = true;
    hasFocus ||= hadFocus;
    restoreFocus();
    source.setVisibleRange(first, last);
  }

  function scheduleDraw() {
    frame ||= window.requestAnimationFrame(draw);
  }

  function createLine() {
    const cells = columns.map((one, n) => h("div", { role: "gridcell", "aria-colindex": String(n + 1), class: one.align ?? null, tabindex: "-1" }));
    const note = h("div", { class: "note", role: "gridcell", tabindex: "-1" });
    const line = h("div", { class: "grid-line", role: "row" }, cells, note);
    Object.assign(line, { cells, note, index: -1, row: undefined });
    return line;
  }

  /** @param {any} line @param {number} index */
  function fillLine(line, index) {
    const row = source.rowAt(index);
    const state = row === undefined ? source.stateAt(index) : "there";
    const isChosen = row !== undefined && selection !== undefined && selection.has(options.keyOf(row));
    if (line.index === index && line.row === row && line.state === state && line.isChosen === isChosen) return;
    if (editor && line.contains(editor.cell) && (line.index !== index || row === undefined)) editor.cancel(); // scrolled away
    Object.assign(line, { index, row, state, isChosen });
    line.dataset.state = state;
    line.setAttribute("aria-rowindex", String(index + 2));
    if (selection) line.setAttribute("aria-selected", String(isChosen));
    for (const cell of line.cells) cell.hidden = row === undefined;
    line.note.hidden = row !== undefined;
    if (row !== undefined) columns.forEach((column, n) => line.cells[n] !== editor?.cell && column.show(line.cells[n], row, index));
    else line.note.replaceChildren(...placeholderContent(state, index));
  }

  /** @param {string} state @param {number} index @returns {Array<Node | string>} */
  function placeholderContent(state, index) {
    if (state === "none") return ["This row is no longer in the list"];
    if (state !== "failed") return ["…"];
    const [first, last, error] = source.blockOf(index);
    if (index !== first && index !== Math.ceil(scroll.top / ROW_HEIGHT)) return ["…"];
    const message = `Could not load rows ${formatNumber(first + 1)}–${formatNumber(last + 1)}: ${error?.message ?? ""}`;
    return [message, h("button", { type: "button", class: "small", on: { click: () => source.retry(index) } }, icon("refresh"), "Try again")];
  }

  /** Makes the active cell reachable with Tab; if it is not visible, the grid itself is. */
  function restoreFocus() {
    const line = /** @type {any} */ (pool.find((one) => /** @type {any} */ (one).index === active.row && !one.hidden));
    const found = line?.row === undefined ? null : /** @type {HTMLElement} */ (line.cells[active.column]);
    if (found !== tabStop) {
      tabStop?.setAttribute("tabindex", "-1");
      found?.setAttribute("tabindex", "0");
      box.tabIndex = found === null ? 0 : -1;
      tabStop = found;
    }
    if (!hasFocus || box.querySelector(":is(button, .cell-input):focus")) return;
    const target = found ?? box;
    if (document.activeElement !== target) target.focus({ preventScroll: true });
  }

  /** @param {number} row @param {number} [column] @param {{extend?: boolean}} [moveOptions] */
  function move(row, column = active.column, moveOptions = {}) {
    const last = Math.max(0, source.length - 1);
    active.row = Math.max(0, Math.min(last, row));
    active.column = Math.max(0, Math.min(columns.length - 1, column));
    if (moveOptions.extend) range.extend(active.row);
    else range.start(active.row);
    scroll.reveal(active.row);
    syncScrollbar();
    draw();
    const cell = box.querySelector("[role=gridcell][tabindex='0']");
    cell?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function syncScrollbar() {
    scroll.barTop = Math.round(scroll.expectedBarTop);
    if (Math.abs(box.scrollTop - scroll.barTop) >= 1) box.scrollTop = scroll.barTop;
    scroll.barTop = box.scrollTop;
  }

  /** Edits a cell in place. @param {any} line @param {number} column @returns {boolean} whether the cell can be edited */
  function edit(line, column) {
    const { edit: cellEdit, label, show } = columns[column] ?? {};
    if (!cellEdit || !show || line?.row === undefined) return false;
    editor?.cancel();
    move(line.index, column);
    const cell = line.cells[column];
    const opened = editCell(cell, `${label}, ${options.nameOf(line.row)}`, line.row, cellEdit, (wasFocused) => {
      editor = null;
      if (line.row !== undefined) show(cell, line.row, line.index);
      hasFocus = wasFocused;
      restoreFocus();
    });
    editor = opened;
    return opened !== null;
  }

  /** @param {any} line @param {number} column @param {{shift: boolean}} clickOptions */
  function selectLine(line, column, clickOptions) {
    if (line.row === undefined) return;
    active.row = line.index;
    active.column = column;
    if (clickOptions.shift) range.extend(active.row);
    else {
      selection?.toggle(options.keyOf(line.row));
      range.start(line.index);
    }
    draw();
  }

  box.addEventListener("scroll", () => {
    if (scroll.scrolled(box.scrollTop)) syncScrollbar();
    scheduleDraw();
    window.clearTimeout(idle);
    idle = window.setTimeout(() => scroll.scrollHeight < scroll.height && syncScrollbar(), SCROLL_IDLE_MS);
  }, { passive: true });
  box.addEventListener("focusin", () => (hasFocus = true));
  box.addEventListener("focusout", (event) => {
    // No other element has the focus: the cell may be scrolling out of view.
    if (!box.contains(/** @type {Node | null} */ (event.relatedTarget))) hasFocus = hasFocus && frame !== 0 && event.relatedTarget === null;
  });
  box.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault());
  box.addEventListener("click", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const line = /** @type {any} */ (target.closest(".grid-rows > .grid-line"));
    if (line === null || line.row === undefined || target.closest("button, a")) return;
    const column = line.cells.indexOf(target.closest("[role=gridcell]"));
    if (selection && (column === 0 || event.shiftKey)) {
      if (target instanceof HTMLInputElement) event.preventDefault();
      window.setTimeout(() => selectLine(line, Math.max(0, column), { shift: event.shiftKey }));
      return;
    }
    if (target.closest(".cell-input")) return;
    move(line.index, Math.max(0, column));
    if (!columns[column]?.edit?.text || columns[column].edit.text(line.row) === null) options.onOpen?.(line.row, line.index);
  });
  box.addEventListener("dblclick", (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    const line = /** @type {any} */ (target.closest(".grid-rows > .grid-line"));
    if (line && !target.closest("button, a, input")) edit(line, line.cells.indexOf(target.closest("[role=gridcell]")));
  });
  box.addEventListener("keydown", (event) => {
    const done = handleGridKey(event, {
      active,
      columns: columns.length,
      last: source.length - 1,
      page: Math.max(1, Math.floor(scroll.view / ROW_HEIGHT) - 1),
      canSelect: selection !== undefined,
      move,
      open: () => {
        // Enter activates a link or button in the cell.
        const inside = /** @type {HTMLElement | null} */ (box.querySelector("[role=gridcell][tabindex='0'] :is(a, button)"));
        const row = source.rowAt(active.row);
        if (inside) inside.click();
        else if (!edit(pool.find((one) => /** @type {any} */ (one).index === active.row && !one.hidden), active.column) && row !== undefined) options.onOpen?.(row, active.row);
      },
      toggle: () => {
        const row = source.rowAt(active.row);
        if (row !== undefined) selection?.toggle(options.keyOf(row));
        range.start(active.row);
      },
      selectLoaded: () => {
        if (!selection) return;
        if (source.isDense) return selection.selectAll();
        if (source.loaded > 0) range.select(0, source.loaded - 1);
      },
      clear: () => (selection && !selection.isEmpty ? (selection.clear(), true) : false),
    });
    if (done) event.preventDefault();
  });

  const resizeObserver = new ResizeObserver(() => {
    measure();
    syncScrollbar();
    scheduleDraw();
  });
  resizeObserver.observe(box);
  effect(() => {
    void source.version.value;
    void selection?.version.value;
    untracked(() => {
      measure();
      scheduleDraw();
    });
  });
  effect(() => {
    if (signInCount.value) untracked(() => source.retryFailed());
  });
  listen(window, "blur", () => (hasFocus = false));
  onCleanup(() => {
    editor?.cancel();
    resizeObserver.disconnect();
    window.cancelAnimationFrame(frame);
    window.clearTimeout(idle);
    source.stop();
  });

  return {
    element,
    active: () => active.row,
    goTo(index, focus = false) {
      hasFocus ||= focus;
      active.row = Math.max(0, Math.min(source.length - 1, index));
      if (!selection || selection.isEmpty) range.start(active.row); // an existing selection keeps its anchor
      scroll.scrollTo(active.row * ROW_HEIGHT);
      syncScrollbar();
      draw();
    },
    refresh: () => source.refresh(),
    /** Focuses the active cell, and scrolls only as far as needed. */
    focus() {
      hasFocus = true;
      scroll.reveal(active.row);
      syncScrollbar();
      draw();
    },
  };
}
