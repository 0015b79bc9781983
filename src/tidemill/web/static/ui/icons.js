// @ts-check
/** Icons as paths in a 16 × 16 square, drawn with one stroke width. */
import { svg } from "../core/dom.js";

/** @type {Record<string, string>} */
const PATHS = {
  alert: "M8 2 15 14H1ZM8 6.5v3.5M8 12v.2",
  ban: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M3.8 3.8l8.4 8.4",
  bars: "M2 14V9M6 14V4M10 14V7M14 14V2",
  bolt: "M9.5 1.5 3.5 9H8l-1.5 5.5L12.5 7H8Z",
  box: "M2 5.5 8 2l6 3.5v5L8 14l-6-3.5ZM2 5.5 8 9l6-3.5M8 9v5",
  check: "M2.5 8.5 6 12l7.5-8",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M8 4.5V8l2.5 1.5",
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  copy: "M6 6h8v8H6ZM10 6V2H2v8h4",
  cross: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4",
  dash: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M5 8h6",
  dots: "M8 3.2v.1M8 8v.1M8 12.8v.1",
  down: "M8 2v9M4 7.5 8 11.5l4-4M2.5 14h11",
  export: "M7 3H3v10h10V9M9 2.5h4.5V7M13.2 2.8 7.5 8.5",
  eye: "M1.5 8C4 3.5 12 3.5 14.5 8 12 12.5 4 12.5 1.5 8ZM8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 1 0 0-3.6",
  files: "M5.5 2H10l3 3v6.5H5.5ZM10 2v3h3M3 5v9h7.5",
  flag: "M3.5 14V2.5h8.5L10 5.5l2 3H3.5",
  half: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M8 2v12",
  heart: "M1.5 8.5H5l1.5-4 3 7 1.5-3h3.5",
  help: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M6.2 6.3C6.4 4.4 9.7 4.4 9.8 6.3 9.8 7.6 8 7.7 8 9.2M8 11.2v.2",
  import: "M9 3H3v10h10V7M13.5 2.5 7.5 8.5M7.5 4.5v4h4",
  key: "M10.5 2.5a3 3 0 1 0 0 6 3 3 0 1 0 0-6M8.3 7.7 2.5 13.5M4.5 11.5 6 13",
  list: "M5.5 4H14M5.5 8H14M5.5 12H14M2 4h.5M2 8h.5M2 12h.5",
  menu: "M2 4h12M2 8h12M2 12h12",
  moon: "M13.5 9.5A6 6 0 1 1 6.5 2.5 5 5 0 0 0 13.5 9.5Z",
  pause: "M5.5 3v10M10.5 3v10",
  play: "M4.5 2.8 13 8l-8.5 5.2Z",
  plus: "M8 3v10M3 8h10",
  read: "M3.5 2H9l3.5 3.5V14h-9ZM6 8h4M6 11h4",
  refresh: "M13 2.8v3.4H9.6M3 13.2V9.8h3.4M12.7 6A5 5 0 0 0 4 4.8L3.2 6M3.3 10a5 5 0 0 0 8.7 1.2l.8-1.2",
  retry: "M13 3v3.5H9.5M12.8 6.3A5.3 5.3 0 1 0 13.3 9",
  run: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M6.6 5.5v5L10.8 8Z",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 1 0 0-9M10.3 10.3 14 14",
  "sign-out": "M9.5 3V2H2.5v12h7v-1M6 8h8M11.3 5.3 14 8l-2.7 2.7",
  skip: "M3 3.5 9 8l-6 4.5ZM12.5 3.5v9",
  stack: "M8 2 14.5 5 8 8 1.5 5ZM2 8.2 8 11l6-2.8M2 11.2 8 14l6-2.8",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 1 0 0-6M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1.1 1.1M11.9 11.9 13 13M3 13l1.1-1.1M11.9 4.1 13 3",
  top: "M8 14V3M3.5 7.5 8 3l4.5 4.5",
  trash: "M2.5 4h11M6 4V2h4v2M4 4l.7 10h6.6L12 4M6.7 6.8v4.4M9.3 6.8v4.4",
  undo: "M3 3v3.5h3.5M3.2 6.3A5.3 5.3 0 1 1 2.7 9",
  up: "M8 11.5v-9M4 6 8 2l4 4M2.5 14h11",
  user: "M8 2.5a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 1 0 0-5.4M2.5 14c.4-5 10.6-5 11 0",
  users: "M6 3a2.3 2.3 0 1 0 0 4.6A2.3 2.3 0 1 0 6 3M1.5 13.5c.3-4.4 8.7-4.4 9 0M10.5 3.2a2.3 2.3 0 0 1 0 4.2M12 9.6c1.5.5 2.4 1.8 2.5 3.9",
  waves: "M1.5 6c2.2 0 2.2-2 4.3-2s2.2 2 4.4 2 2.2-2 4.3-2M1.5 11c2.2 0 2.2-2 4.3-2s2.2 2 4.4 2 2.2-2 4.3-2",
  wheel: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M8 2v12M2 8h12M3.8 3.8l8.4 8.4M12.2 3.8l-8.4 8.4",
};

/** An icon beside a text. Hidden from screen readers. @param {string} name */
export function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false", fill: "none", stroke: "currentColor", "stroke-width": "1.6", "stroke-linecap": "round", "stroke-linejoin": "round" },
    svg("path", { d: PATHS[name] ?? PATHS.dash }),
  );
}
