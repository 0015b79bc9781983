// @ts-check
/** Status badges: icon, word and colour. The words are those of the API. */
import { h } from "../core/dom.js";
import { humanize } from "../core/format.js";
import { icon } from "./icons.js";

/** @type {Record<string, [tone: string, icon: string]>} */
const STYLES = {
  pending: ["wait", "clock"],
  ingesting: ["run", "read"],
  running: ["run", "run"],
  processing: ["run", "run"],
  paused: ["warn", "pause"],
  cancelling: ["warn", "ban"],
  cancelled: ["wait", "ban"],
  completed: ["ok", "check"],
  completed_with_errors: ["warn", "alert"],
  done: ["ok", "check"],
  failed: ["bad", "cross"],
  retry_wait: ["retry", "retry"],
  not_found: ["warn", "help"],
  skipped: ["wait", "skip"],
  ready: ["wait", "clock"],
  leased: ["run", "run"],
  ok: ["ok", "check"],
  degraded: ["warn", "alert"],
  unfit: ["bad", "cross"],
};

export const JOB_STATUSES = ["pending", "ingesting", "running", "paused", "cancelling", "completed", "completed_with_errors", "failed", "cancelled"];
export const ITEM_STATUSES = ["pending", "processing", "retry_wait", "done", "not_found", "skipped", "failed", "cancelled"];
export const OPEN_ITEM_STATUSES = ["pending", "processing", "retry_wait"];
const CLOSED_JOB_STATUSES = new Set(["completed", "completed_with_errors", "failed", "cancelled"]);

/** @param {string} name of a job status */
export function isClosed(name) {
  return CLOSED_JOB_STATUSES.has(name);
}

/** @param {string} name @param {string} [label] replaces the status name */
export function statusBadge(name, label) {
  const made = h("span", { class: "status" });
  updateStatusBadge(made, name, label);
  return made;
}

/** Changes a badge in place. @param {HTMLElement} badge @param {string} name @param {string} [label] */
export function updateStatusBadge(badge, name, label) {
  if (badge.dataset.status === name && label === undefined) return;
  const [tone, picture] = STYLES[name] ?? ["wait", "dash"];
  badge.dataset.tone = tone;
  badge.dataset.status = name;
  badge.replaceChildren(icon(picture), label ?? humanize(name));
}
