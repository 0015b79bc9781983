// @ts-check
/** Formats numbers, times and sizes for display. Pure functions. */
import { serverNow } from "./api.js";
import { ExactNumber } from "./json.js";

const NUMBERS = new Intl.NumberFormat("en-US");

/** All digits, with thousands separators. @param {number | bigint | ExactNumber | null | undefined} value */
export function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  if (value instanceof ExactNumber) return /^-?\d+$/.test(value.source) ? NUMBERS.format(BigInt(value.source)) : value.source;
  return NUMBERS.format(value);
}

/** @param {number} n @param {string} one @param {string} [many] */
export function pluralize(n, one, many = `${one}s`) {
  return `${formatNumber(n)} ${n === 1 ? one : many}`;
}

/** A share as a percentage. Never 100 % before everything is done, and never 0 % once something is. @param {number} part @param {number} whole */
export function formatPercent(part, whole) {
  if (!(whole > 0)) return "–";
  if (part >= whole) return "100%";
  const value = Math.floor((part / whole) * 1000) / 10;
  return part > 0 && value === 0 ? "<0.1%" : `${value.toFixed(1)}%`;
}

/** Per second, or per minute for small rates. @param {number} perSecond */
export function formatRate(perSecond) {
  if (!(perSecond > 0)) return "–";
  if (perSecond >= 10_000) return `${(perSecond / 1000).toFixed(perSecond >= 100_000 ? 0 : 1)}k/s`;
  if (perSecond >= 10) return `${formatNumber(Math.round(perSecond))}/s`;
  if (perSecond >= 1) return `${perSecond.toFixed(1)}/s`;
  return `${(perSecond * 60).toFixed(perSecond * 60 >= 10 ? 0 : 1)}/min`;
}

/** @param {number | null | undefined} seconds */
export function formatDuration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${pad(Math.floor((s % 3600) / 60))} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** Formats the duration of an attempt. @param {number | null | undefined} ms */
export function formatMilliseconds(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 1000 ? `${formatNumber(ms)} ms` : ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : formatDuration(ms / 1000);
}

/** @param {number | null | undefined} size */
export function formatBytes(size) {
  if (size === null || size === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let step = 0;
  let value = size;
  for (; value >= 1000 && step < units.length - 1; step += 1) value /= 1000;
  return `${step === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[step]}`;
}

/** @param {number} n */
function pad(n) {
  return String(n).padStart(2, "0");
}

/** @param {string | number | Date} at */
function localParts(at) {
  const d = new Date(at);
  return {
    date: `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`,
    time: `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`,
  };
}

/** The time if it is today, otherwise date and time. @param {string | number | null | undefined} at */
export function formatTime(at) {
  if (!at) return "–";
  const [then, today] = [localParts(at), localParts(serverNow())];
  return then.date === today.date ? then.time : `${then.date} ${then.time}`;
}

/** @param {string | number | null | undefined} at */
export function formatDateTime(at) {
  if (!at) return "";
  const then = localParts(at);
  return `${then.date} ${then.time}`;
}

/** @param {string | number | null | undefined} at @param {number} [from] */
export function formatAge(at, from = serverNow()) {
  if (!at) return "–";
  const seconds = (from - new Date(at).getTime()) / 1000;
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return formatTime(at);
}

/** Texts for the reasons why there is no estimate. */
const NO_ESTIMATE_REASONS = {
  closed: "closed",
  paused: "paused",
  cancelling: "cancelling",
  ingesting: "the file is still being read",
  no_worker: "no running worker handles this kind",
  not_moving: "nothing was settled in the last 30 seconds",
};
const WARM_UP_S = 30;

/**
 * The estimated time left of a job, with a range. There is no estimate in the first 30 seconds after its start.
 * @param {{now_per_s: number, average_per_s: number, eta_s?: number | null, why?: string | null}} rates
 * @param {string | null | undefined} started
 * @param {number} [at]
 */
export function estimateTimeLeft(rates, started, at = serverNow()) {
  if (rates.why) return { text: /** @type {any} */ (NO_ESTIMATE_REASONS)[rates.why] ?? rates.why, isKnown: false };
  if (rates.eta_s === null || rates.eta_s === undefined) return { text: "unknown", isKnown: false };
  const age = started ? (at - new Date(started).getTime()) / 1000 : WARM_UP_S;
  if (age < WARM_UP_S && rates.eta_s > WARM_UP_S) return { text: "calculating", isKnown: false };
  const open = rates.eta_s * rates.now_per_s;
  const byAverage = rates.average_per_s > 0 ? open / rates.average_per_s : rates.eta_s;
  const spread = Math.abs(byAverage - rates.eta_s) / 2;
  const range = spread > Math.max(5, rates.eta_s * 0.05) ? ` (± ${formatDuration(spread)})` : "";
  return { text: `${formatDuration(rates.eta_s)}${range}`, isKnown: true };
}

/** Shortens text for a narrow element. @param {string} text @param {number} maxLength */
export function truncate(text, maxLength) {
  return text.length <= maxLength ? text : `${text.slice(0, maxLength - 1)}…`;
}

/** `completed_with_errors` as "completed with errors". @param {string} name */
export function humanize(name) {
  return name.replaceAll("_", " ");
}

/** The values of an input summary, joined. @param {any} summary */
export function summaryText(summary) {
  if (summary === null || summary === undefined) return "";
  if (typeof summary !== "object") return String(summary);
  return Object.values(summary).map(String).filter(Boolean).join(" · ");
}

/** The start of a date, or of a date that is some days later, as an ISO timestamp. @param {string} date @param {number} [plusDays] */
export function startOfDay(date, plusDays = 0) {
  if (!date) return null;
  const at = new Date(`${date}T00:00:00`);
  at.setDate(at.getDate() + plusDays);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}

/** Replaces timestamps in a message of the service with local times. @param {string} sentence */
export function localizeTimes(sentence) {
  return sentence.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)/g, (time) => formatTime(time));
}
