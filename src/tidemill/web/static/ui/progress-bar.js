// @ts-check
/** The progress of a job, by item status. */
import { h } from "../core/dom.js";
import { formatNumber, formatPercent } from "../core/format.js";
import { countSettled } from "../core/throughput.js";

/** @type {Array<[part: string, of: (counts: any) => number]>} */
const PARTS = [
  ["done", (c) => c.done],
  ["other", (c) => c.not_found + c.skipped + c.cancelled],
  ["failed", (c) => c.failed],
  ["retry_wait", (c) => c.retry_wait],
  ["processing", (c) => c.processing],
];

/** The progress as text, for screen readers. @param {any} counts */
export function progressText(counts) {
  const parts = [`${formatPercent(countSettled(counts), counts.total)} settled`, `${formatNumber(counts.done)} done`];
  if (counts.failed) parts.push(`${formatNumber(counts.failed)} failed`);
  const open = counts.pending + counts.processing + counts.retry_wait;
  if (open) parts.push(`${formatNumber(open)} open`);
  return parts.join(", ");
}

/** @param {() => any} counts @param {{thin?: boolean}} [options] */
export function progressBar(counts, options = {}) {
  const total = () => Math.max(1, counts().total);
  return h(
    "div",
    {
      class: options.thin ? "progress thin" : "progress",
      role: "progressbar",
      "aria-label": "Progress",
      "aria-valuemin": "0",
      "aria-valuemax": "100",
      "aria-valuenow": () => Math.floor((countSettled(counts()) / total()) * 100),
      "aria-valuetext": () => progressText(counts()),
    },
    PARTS.map(([part, of]) => h("span", { data: { part }, style: { "--part": () => String((of(counts()) / total()) * 100) } })),
  );
}
