// @ts-check
/** Numbers, times and sizes as people read them. Pure functions. */
import { Exact } from "./json.js";
import { now } from "./api.js";

const NUMBERS = new Intl.NumberFormat("en-US");

/** Every digit, in groups. @param {number | bigint | Exact | null | undefined} value */
export function count(value) {
  if (value === null || value === undefined) return "–";
  if (value instanceof Exact) return /^-?\d+$/.test(value.source) ? NUMBERS.format(BigInt(value.source)) : value.source;
  return NUMBERS.format(value);
}

/** @param {number} n @param {string} one @param {string} [many] */
export function counted(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Of a whole, never 100 % before all of it is there, nor 0 % when something is. @param {number} part @param {number} whole */
export function percent(part, whole) {
  if (!(whole > 0)) return "–";
  if (part >= whole) return "100%";
  const value = Math.floor((part / whole) * 1000) / 10;
  return part > 0 && value === 0 ? "<0.1%" : `${value.toFixed(1)}%`;
}

/** Per second, or per minute when that is clearer. @param {number} perSecond */
export function rate(perSecond) {
  if (!(perSecond > 0)) return "–";
  if (perSecond >= 10_000) return `${(perSecond / 1000).toFixed(perSecond >= 100_000 ? 0 : 1)}k/s`;
  if (perSecond >= 10) return `${count(Math.round(perSecond))}/s`;
  if (perSecond >= 1) return `${perSecond.toFixed(1)}/s`;
  return `${(perSecond * 60).toFixed(perSecond * 60 >= 10 ? 0 : 1)}/min`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${pad(Math.floor((s % 3600) / 60))} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** How long something took. @param {number | null | undefined} ms */
export function milliseconds(ms) {
  if (ms === null || ms === undefined) return "–";
  return ms < 1000 ? `${count(ms)} ms` : ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : duration(ms / 1000);
}

/** @param {number | null | undefined} size */
export function bytes(size) {
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
function local(at) {
  const d = new Date(at);
  return {
    date: `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`,
    time: `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`,
  };
}

/** The time of today, the date before it otherwise. @param {string | number | null | undefined} at */
export function moment(at) {
  if (!at) return "–";
  const [then, today] = [local(at), local(now())];
  return then.date === today.date ? then.time : `${then.date} ${then.time}`;
}

/** @param {string | number | null | undefined} at */
export function wholeMoment(at) {
  if (!at) return "";
  const then = local(at);
  return `${then.date} ${then.time}`;
}

/** @param {string | number | null | undefined} at @param {number} [from] */
export function ago(at, from = now()) {
  if (!at) return "–";
  const seconds = (from - new Date(at).getTime()) / 1000;
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return moment(at);
}

/** Why there is no estimate, in words. */
const WHY = {
  closed: "closed",
  paused: "paused",
  cancelling: "cancelling",
  ingesting: "its file is still being read",
  not_moving: "nothing was settled in the last half minute",
};
const SETTLES_S = 30;

/**
 * When a job may be done. An estimate is a range, and none is made of the first half minute.
 * @param {{now_per_s: number, average_per_s: number, eta_s?: number | null, why?: string | null}} rates
 * @param {string | null | undefined} created
 * @param {number} [at]
 */
export function estimate(rates, created, at = now()) {
  if (rates.why) return { text: /** @type {any} */ (WHY)[rates.why] ?? rates.why, isKnown: false };
  if (rates.eta_s === null || rates.eta_s === undefined) return { text: "not known", isKnown: false };
  const age = created ? (at - new Date(created).getTime()) / 1000 : SETTLES_S;
  if (age < SETTLES_S && rates.eta_s > SETTLES_S) return { text: "calculating", isKnown: false };
  const open = rates.eta_s * rates.now_per_s;
  const byAverage = rates.average_per_s > 0 ? open / rates.average_per_s : rates.eta_s;
  const spread = Math.abs(byAverage - rates.eta_s) / 2;
  const range = spread > Math.max(5, rates.eta_s * 0.05) ? ` (± ${duration(spread)})` : "";
  return { text: `${duration(rates.eta_s)}${range}`, isKnown: true };
}

/** A value cut for a small place. @param {string} text @param {number} most */
export function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

/** `completed_with_errors` as words. @param {string} name */
export function words(name) {
  return name.replaceAll("_", " ");
}

/** An input in a few words: what it calls itself. @param {any} summary */
export function titleOf(summary) {
  if (summary === null || summary === undefined) return "";
  if (typeof summary !== "object") return String(summary);
  return Object.values(summary).map(String).filter(Boolean).join(" · ");
}

/** The beginning of a day that stands in the address, or of one so many days later. @param {string} date @param {number} [plus] */
export function dayStart(date, plus = 0) {
  if (!date) return null;
  const at = new Date(`${date}T00:00:00`);
  at.setDate(at.getDate() + plus);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}

/** Times in a sentence of the service's, as people here read them. @param {string} sentence */
export function localTimes(sentence) {
  return sentence.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)/g, (time) => moment(time));
}
