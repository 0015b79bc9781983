// @ts-check
/** How far a job is, split by what became of its items. */
import { h } from "../core/dom.js";
import { count, percent } from "../core/format.js";
import { settled } from "../core/pace.js";

/** @type {Array<[part: string, of: (counts: any) => number]>} */
const PARTS = [
  ["done", (c) => c.done],
  ["other", (c) => c.not_found + c.skipped + c.cancelled],
  ["failed", (c) => c.failed],
  ["retry_wait", (c) => c.retry_wait],
  ["processing", (c) => c.processing],
];

/** In a few words, for who does not see the bar. @param {any} counts */
export function progressText(counts) {
  const said = [`${percent(settled(counts), counts.total)} settled`, `${count(counts.done)} done`];
  if (counts.failed) said.push(`${count(counts.failed)} failed`);
  const open = counts.pending + counts.processing + counts.retry_wait;
  if (open) said.push(`${count(open)} open`);
  return said.join(", ");
}

/** @param {() => any} counts @param {{thin?: boolean}} [how] */
export function progressBar(counts, how = {}) {
  const total = () => Math.max(1, counts().total);
  return h(
    "div",
    {
      class: how.thin ? "progress thin" : "progress",
      role: "progressbar",
      "aria-label": "Progress",
      "aria-valuemin": "0",
      "aria-valuemax": "100",
      "aria-valuenow": () => Math.floor((settled(counts()) / total()) * 100),
      "aria-valuetext": () => progressText(counts()),
    },
    PARTS.map(([part, of]) => h("span", { data: { part }, style: { "--part": () => String((of(counts()) / total()) * 100) } })),
  );
}
