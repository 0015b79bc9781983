// @ts-check
/** Names of jobs for people: what a job does, its input, and how long it took. */
import { formatDuration, formatMilliseconds } from "./format.js";

/** @type {Record<string, [label: string, title: string]>} */
const BUILT_IN_KINDS = {
  "tidemill.import": ["import", "Import into"],
  "tidemill.export": ["export", "Export of"],
  "tidemill.distribute": ["distribution", "Distribution of"],
};

/** @param {string} kind */
export function kindLabel(kind) {
  return BUILT_IN_KINDS[kind]?.[0] ?? kind;
}

/** What the job does, such as "Import into people" or "price.lookup". @param {any} job */
export function jobTitle(job) {
  const [label, title] = BUILT_IN_KINDS[job.kind] ?? [job.kind, ""];
  if (title === "") return label;
  if (job.target) return `${title} ${job.target}`;
  return job.kind === "tidemill.export" ? "Export of job results" : `${label[0].toUpperCase()}${label.slice(1)}`;
}

/** The name of the input: a file, a list of inputs, or nothing for an export. @param {any} job */
export function inputLabel(job) {
  return job.file_name ?? (job.kind === "tidemill.export" ? "–" : "no file");
}

/** The title of the browser tab. @param {...(string | null | undefined)} parts the most specific first */
export function setTabTitle(...parts) {
  document.title = [...parts.filter(Boolean), "Tidemill"].join(" · ");
}

/**
 * Seconds from the first start to the close, or until now, without the time for which the job was closed. Null before the start.
 * @param {any} job a job or an import @param {number} at
 */
export function runSeconds(job, at) {
  if (!job.started_at) return null;
  const closed = job.closed_at ?? job.completed_at;
  return Math.max(0, ((closed ? Date.parse(closed) : at) - Date.parse(job.started_at)) / 1000 - (job.idle_s ?? 0));
}

/** How long a job ran, or has run so far. @param {any} job @param {number} at */
export function durationText(job, at) {
  const seconds = runSeconds(job, at);
  if (job.closed_at ?? job.completed_at) return seconds === null ? "not started" : formatMilliseconds(Math.round(seconds * 1000));
  return seconds === null ? "queued" : formatDuration(seconds);
}

/** The time in the queue, if it was long enough to matter. @param {any} job @param {number} at */
export function queuedText(job, at) {
  const closed = job.closed_at ?? job.completed_at;
  const end = job.started_at ?? closed;
  const seconds = ((end ? Date.parse(end) : at) - Date.parse(job.created_at)) / 1000;
  return seconds >= 1 ? `queued ${formatDuration(seconds)}` : "";
}
