// @ts-check
/** Line and stacked area charts on a canvas, each with a table of the same numbers for screen readers. */
import { h } from "../core/dom.js";
import { formatRate, formatTime } from "../core/format.js";
import { preference } from "../core/preferences.js";
import { effect, onCleanup } from "../core/signal.js";

/** @typedef {{name: string, colour: string, values: number[]}} Series `colour` is the name of a custom property */
/** @typedef {{at: number[], series: Series[], formatValue: (value: number) => string}} Chart */

const MARGIN = { left: 46, right: 8, top: 8, bottom: 20 };

/**
 * @param {string} label
 * @param {() => Chart} data
 * @param {{isStacked?: boolean}} [options]
 */
export function chart(label, data, options = {}) {
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { role: "img", "aria-label": label }));
  const legend = h("div", { class: "legend" });
  const table = h("table", { class: "unseen" });
  const draw = () => paint(canvas, data(), Boolean(options.isStacked));
  const theme = preference("theme", "system");
  effect(() => {
    void theme.value;
    const now = data();
    legend.replaceChildren(...now.series.map((one) => h("span", null, h("span", { class: "swatch", style: { "--swatch": `var(${one.colour})` } }), one.name)));
    table.replaceChildren(...tableRows(label, now));
    draw();
  });
  const resized = new ResizeObserver(draw);
  resized.observe(canvas);
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", draw);
  onCleanup(() => {
    resized.disconnect();
    scheme.removeEventListener("change", draw);
  });
  return h("figure", { class: "chart" }, canvas, legend, table);
}

/** @param {string} label @param {Chart} data */
function tableRows(label, data) {
  return [
    h("caption", null, label),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Time"), data.series.map((one) => h("th", { scope: "col" }, one.name)))),
    h("tbody", null, data.at.map((at, n) => h("tr", null, h("th", { scope: "row" }, formatTime(at)), data.series.map((one) => h("td", null, data.formatValue(one.values[n] ?? 0)))))),
  ];
}

/** @param {HTMLCanvasElement} canvas @param {Chart} data @param {boolean} isStacked */
function paint(canvas, data, isStacked) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const context = canvas.getContext("2d");
  if (!width || !height || context === null) return;
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const computedStyle = getComputedStyle(canvas);
  const colour = (/** @type {string} */ name) => resolveColour(canvas, name);
  const layers = isStacked ? stackSeries(data.series) : data.series.map((one) => ({ ...one, base: one.values.map(() => 0) }));
  const top = niceCeiling(Math.max(0, ...layers.flatMap((one) => one.values)));
  context.font = `11px ${computedStyle.fontFamily}`;
  const ticks = [0, 0.5, 1].map((part) => ({ value: top * part, text: data.formatValue(top * part) }));
  const left = Math.max(MARGIN.left, ...ticks.map((one) => Math.ceil(context.measureText(one.text).width) + 8));
  const x = (/** @type {number} */ n) => left + ((width - left - MARGIN.right) * n) / Math.max(1, data.at.length - 1);
  const y = (/** @type {number} */ value) => height - MARGIN.bottom - (height - MARGIN.top - MARGIN.bottom) * (value / top);
  context.fillStyle = colour("--muted");
  context.strokeStyle = colour("--line");
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const { value, text } of ticks) {
    const at = Math.round(y(value)) + 0.5;
    context.beginPath();
    context.moveTo(left, at);
    context.lineTo(width - MARGIN.right, at);
    context.stroke();
    context.fillText(text, left - 6, at);
  }
  context.textBaseline = "alphabetic";
  if (data.at.length > 1) {
    context.textAlign = "left";
    context.fillText(formatTime(data.at[0]), left, height - 4);
    context.textAlign = "right";
    context.fillText(formatTime(data.at[data.at.length - 1]), width - MARGIN.right, height - 4);
  }
  for (const one of layers.toReversed()) {
    context.fillStyle = context.strokeStyle = colour(one.colour);
    context.beginPath();
    one.values.forEach((value, n) => context.lineTo(x(n), y(value)));
    for (let n = one.values.length - 1; n >= 0; n -= 1) context.lineTo(x(n), y(one.base[n]));
    context.globalAlpha = isStacked ? 0.85 : 0.14;
    context.fill();
    context.globalAlpha = 1;
    if (isStacked) continue;
    context.lineWidth = 1.75;
    context.beginPath();
    one.values.forEach((value, n) => context.lineTo(x(n), y(value)));
    context.stroke();
  }
}

/** Resolves a custom property to a colour for the canvas, which cannot use light-dark(). @param {HTMLElement} near @param {string} name */
function resolveColour(near, name) {
  const probe = document.createElement("span");
  probe.style.setProperty("color", `var(${name})`);
  (near.parentElement ?? document.body).append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** @param {Series[]} series */
function stackSeries(series) {
  let below = series[0]?.values.map(() => 0) ?? [];
  return series.map((one) => {
    const base = below;
    below = one.values.map((value, n) => value + (base[n] ?? 0));
    return { ...one, base, values: below };
  });
}

/** The next round number that is not smaller. @param {number} value */
function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((n) => n * step).find((n) => n >= value) ?? 10 * step;
}

/**
 * The rate of settled items, from cumulative counts.
 * @param {Array<{at: string, settled: number, failed: number}>} points
 * @param {string | null | undefined} startedAt the time before it, in the queue, does not lower the first rate
 * @returns {Chart}
 */
export function throughputSeries(points, startedAt) {
  const started = startedAt ? Date.parse(startedAt) : Number.NaN;
  const isQueuedFirst = points.length > 1 && points[0].settled === 0 && started > Date.parse(points[0].at) && started < Date.parse(points[1].at);
  const first = isQueuedFirst ? started : Date.parse(points[0]?.at);
  const steps = points.slice(1).map((point, n) => {
    const before = points[n];
    const seconds = Math.max(0.001, (Date.parse(point.at) - (n === 0 ? first : Date.parse(before.at))) / 1000);
    const failed = Math.max(0, point.failed - before.failed) / seconds;
    return { at: Date.parse(point.at), failed, good: Math.max(0, (point.settled - before.settled) / seconds - failed) };
  });
  // Each value covers the time before it, so the first one is repeated at its start.
  if (steps.length) steps.unshift({ ...steps[0], at: first });
  return {
    at: steps.map((one) => one.at),
    series: [
      { name: "succeeded", colour: "--bar-ok", values: steps.map((one) => one.good) },
      { name: "failed", colour: "--bar-bad", values: steps.map((one) => one.failed) },
    ],
    formatValue: (value) => (value === 0 ? "0" : formatRate(value)),
  };
}
