// @ts-check
/**
 * A grid of any number of rows, of which only those in sight are elements.
 *
 * The rows stand in a view that stays where it is while the space behind it is scrolled; they are moved to where the
 * list is. See virtual.js for how far that is, source.js for where rows come from, selection.js for what is selected.
 */
import { signIns } from "../core/api.js";
import { h, listen, uid } from "../core/dom.js";
import { count } from "../core/format.js";
import { effect, onCleanup, untracked } from "../core/signal.js";
import { icon } from "./icons.js";
import { gridKeys } from "./grid-keys.js";
import { GridRange } from "./grid-range.js";
import { VirtualScroll } from "./virtual.js";

const ROW = 36;
const BESIDE = 6;
const IDLE_MS = 160;

/**
 * @typedef {object} Column
 * @property {string} label
 * @property {string} [width] of a CSS grid
 * @property {"right"} [align]
 * @property {(cell: HTMLElement, row: any, index: number) => void} show text, or elements that are made of text
 */
/**
 * @typedef {object} Options
 * @property {string} label
 * @property {import("./source.js").SeqSource | import("./source.js").CursorSource} source
 * @property {Column[]} columns
 * @property {(row: any) => string | number} keyOf
 * @property {(row: any) => string} nameOf for who hears it: "row 41,207"
 * @property {import("./selection.js").Selection} [selection]
 * @property {(row: any, index: number) => void} [onOpen]
 * @property {HTMLElement} [foot]
 * @property {() => HTMLElement} [whenEmpty]
 */
/** @typedef {{element: HTMLElement, goTo: (index: number, focus?: boolean) => void, refresh: () => void, active: () => number, focus: () => void}} Grid */

/** @param {Options} options @returns {Grid} */
export function makeGrid(options) {
  const { source, selection } = options;
  const scroll = new VirtualScroll(ROW);
  const columns = selection ? [checkColumn(), ...options.columns] : options.columns;
  const template = columns.map((one) => one.width ?? "minmax(8rem, 1fr)").join(" ");
  const id = uid("grid");
  /** @type {{row: number, column: number}} */
  const active = { row: 0, column: 0 };
  const range = new GridRange(source, selection, options.keyOf);
  let hasFocus = false;
  /** The cell that Tab leads to. @type {HTMLElement | null} */
  let reached = null;
  let frame = 0;
  let idle = 0;
  /** @type {HTMLElement[]} */
  const pool = [];

  const head = h("div", { class: "grid-line grid-head", role: "row", "aria-rowindex": "1" }, columns.map((one, n) => h("div", { role: "columnheader", "aria-colindex": String(n + 1), class: one.align ?? null, title: one.label }, one.label || h("span", { class: "unseen" }, "Selected"))));
  const rows = h("div", { class: "grid-rows", role: "rowgroup" });
  const view = h("div", { class: "grid-view", style: { "--grid-columns": template } }, h("div", { role: "rowgroup" }, head), rows);
  const tall = h("div", { class: "grid-tall", role: "presentation" }, view);
  const box = h("div", { class: "grid-scroll", id, role: "grid", "aria-label": options.label, "aria-colcount": String(columns.length), "aria-multiselectable": selection ? "true" : null, tabindex: "0" }, tall);
  const blank = h("div", { hidden: true });
  const element = h("div", { class: "grid" }, box, blank, options.foot ?? null);

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
    scroll.resize(source.length, Math.max(ROW, height - ROW));
    tall.style.setProperty("height", `${scroll.space + ROW}px`);
    box.setAttribute("aria-rowcount", source.isComplete ? String(source.length + 1) : "-1");
    const isBlank = source.isComplete && source.length === 0;
    if (isBlank && blank.childElementCount === 0 && options.whenEmpty) blank.replaceChildren(options.whenEmpty());
    blank.hidden = !isBlank || !options.whenEmpty;
    box.hidden = isBlank && Boolean(options.whenEmpty);
  }

  function draw() {
    frame = 0;
    const hadFocus = hasFocus; // a cell that is hidden here loses it at once
    const [first, last] = scroll.window(BESIDE);
    while (pool.length < last - first) pool.push(makeLine());
    const used = new Set();
    for (let index = first; index < last; index += 1) {
      const line = pool[index % pool.length];
      used.add(line);
      if (!line.isConnected) rows.append(line);
      line.hidden = false;
      line.style.setProperty("transform", `translateY(${Math.round(index * ROW - scroll.top)}px)`);
      fill(line, index);
    }
    for (const line of pool) if (!used.has(line)) line.hidden = true;
    hasFocus ||= hadFocus;
    keepFocus();
    source.want(first, last);
  }

  function later() {
    frame ||= window.requestAnimationFrame(draw);
  }

  function makeLine() {
    const cells = columns.map((one, n) => h("div", { role: "gridcell", "aria-colindex": String(n + 1), class: one.align ?? null, tabindex: "-1" }));
    const note = h("div", { class: "note", role: "gridcell", tabindex: "-1" });
    const line = h("div", { class: "grid-line", role: "row" }, cells, note);
    Object.assign(line, { cells, note, index: -1, row: undefined });
    return line;
  }

  /** @param {any} line @param {number} index */
  function fill(line, index) {
    const row = source.rowAt(index);
    const state = row === undefined ? source.stateAt(index) : "there";
    const isChosen = row !== undefined && selection !== undefined && selection.has(options.keyOf(row));
    if (line.index === index && line.row === row && line.state === state && line.isChosen === isChosen) return;
    Object.assign(line, { index, row, state, isChosen });
    line.dataset.state = state;
    line.setAttribute("aria-rowindex", String(index + 2));
    if (selection) line.setAttribute("aria-selected", String(isChosen));
    for (const cell of line.cells) cell.hidden = row === undefined;
    line.note.hidden = row !== undefined;
    if (row !== undefined) columns.forEach((column, n) => column.show(line.cells[n], row, index));
    else line.note.replaceChildren(...notes(state, index));
  }

  /** @param {string} state @param {number} index @returns {Array<Node | string>} */
  function notes(state, index) {
    if (state === "none") return ["this row is not in this list any more"];
    if (state !== "failed") return ["…"];
    const [first, last, error] = source.blockOf(index);
    if (index !== first && index !== Math.ceil(scroll.top / ROW)) return ["…"];
    const says = `Could not load rows ${count(first + 1)}–${count(last + 1)}: ${error?.message ?? ""}`;
    return [says, h("button", { type: "button", class: "small", on: { click: () => source.retry(index) } }, icon("retry"), "Retry")];
  }

  /** The active cell can be reached with Tab; where it is out of sight, the grid itself can. */
  function keepFocus() {
    const line = /** @type {any} */ (pool.find((one) => /** @type {any} */ (one).index === active.row && !one.hidden));
    const found = line?.row === undefined ? null : /** @type {HTMLElement} */ (line.cells[active.column]);
    if (found !== reached) {
      reached?.setAttribute("tabindex", "-1");
      found?.setAttribute("tabindex", "0");
      box.tabIndex = found === null ? 0 : -1;
      reached = found;
    }
    if (!hasFocus || box.querySelector("button:focus")) return;
    const target = found ?? box;
    if (document.activeElement !== target) target.focus({ preventScroll: true });
  }

  /** @param {number} row @param {number} [column] @param {{extend?: boolean}} [how] */
  function move(row, column = active.column, how = {}) {
    const last = Math.max(0, source.length - 1);
    active.row = Math.max(0, Math.min(last, row));
    active.column = Math.max(0, Math.min(columns.length - 1, column));
    if (how.extend) range.extend(active.row);
    else range.begin(active.row);
    scroll.reveal(active.row);
    setBar();
    draw();
    const cell = box.querySelector("[role=gridcell][tabindex='0']");
    cell?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function setBar() {
    scroll.bar = Math.round(scroll.rightBar);
    if (Math.abs(box.scrollTop - scroll.bar) >= 1) box.scrollTop = scroll.bar;
    scroll.bar = box.scrollTop;
  }

  /** @param {any} line @param {number} column @param {{shift: boolean}} how */
  function choose(line, column, how) {
    if (line.row === undefined) return;
    active.row = line.index;
    active.column = column;
    if (how.shift) range.extend(active.row);
    else {
      selection?.toggle(options.keyOf(line.row));
      range.begin(line.index);
    }
    draw();
  }

  box.addEventListener("scroll", () => {
    if (scroll.scrolled(box.scrollTop)) setBar();
    later();
    window.clearTimeout(idle);
    idle = window.setTimeout(() => scroll.space < scroll.height && setBar(), IDLE_MS);
  }, { passive: true });
  box.addEventListener("focusin", () => (hasFocus = true));
  box.addEventListener("focusout", (event) => {
    // Nobody else has it: the cell that had it may just be on its way out of sight.
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
      window.setTimeout(() => choose(line, Math.max(0, column), { shift: event.shiftKey }));
      return;
    }
    move(line.index, Math.max(0, column));
    options.onOpen?.(line.row, line.index);
  });
  box.addEventListener("keydown", (event) => {
    const done = gridKeys(event, {
      active,
      columns: columns.length,
      last: source.length - 1,
      page: Math.max(1, Math.floor(scroll.view / ROW) - 1),
      canSelect: selection !== undefined,
      move,
      open: () => {
        // What stands in a cell, a link or a button, is what Enter means there.
        const inside = /** @type {HTMLElement | null} */ (box.querySelector("[role=gridcell][tabindex='0'] :is(a, button)"));
        const row = source.rowAt(active.row);
        if (inside) inside.click();
        else if (row !== undefined) options.onOpen?.(row, active.row);
      },
      toggle: () => {
        const row = source.rowAt(active.row);
        if (row !== undefined) selection?.toggle(options.keyOf(row));
        range.begin(active.row);
      },
      selectLoaded: () => {
        if (!selection) return;
        if (source.isDense) return selection.all();
        if (source.loaded > 0) range.select(0, source.loaded - 1);
      },
      clear: () => (selection && !selection.isEmpty ? (selection.clear(), true) : false),
    });
    if (done) event.preventDefault();
  });

  const watch = new ResizeObserver(() => {
    measure();
    setBar();
    later();
  });
  watch.observe(box);
  effect(() => {
    source.version.value;
    selection?.version.value;
    untracked(() => {
      measure();
      later();
    });
  });
  effect(() => {
    if (signIns.value) untracked(() => source.retryFailed());
  });
  listen(window, "blur", () => (hasFocus = false));
  onCleanup(() => {
    watch.disconnect();
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
      if (!selection || selection.isEmpty) range.begin(active.row); // who has begun a selection goes on with it from where that was
      scroll.jump(active.row * ROW);
      setBar();
      draw();
    },
    refresh: () => source.refresh(),
    /** To the active cell again; it is brought into sight, and moves no further than that. */
    focus() {
      hasFocus = true;
      scroll.reveal(active.row);
      setBar();
      draw();
    },
  };
}
