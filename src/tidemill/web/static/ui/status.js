// @ts-check
/** A status: an icon, a word and a colour. The words are those of the API. */
import { h } from "../core/dom.js";
import { words } from "../core/format.js";
import { icon } from "./icons.js";

/** @type {Record<string, [tone: string, icon: string]>} */
const LOOKS = {
  pending: ["wait", "clock"],
  ingesting: ["run", "down"],
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
export const OPEN_ITEMS = ["pending", "processing", "retry_wait"];
const CLOSED = ["completed", "completed_with_errors", "failed", "cancelled"];

/** @param {string} status of a job */
export function isClosed(status) {
  return CLOSED.includes(status);
}

/** @param {string} name @param {string} [said] another word for it */
export function status(name, said) {
  const made = h("span", { class: "status" });
  setStatus(made, name, said);
  return made;
}

/** Change one that is shown. @param {HTMLElement} shown @param {string} name @param {string} [said] */
export function setStatus(shown, name, said) {
  if (shown.dataset.status === name && said === undefined) return;
  const [tone, picture] = LOOKS[name] ?? ["wait", "dash"];
  shown.dataset.tone = tone;
  shown.dataset.status = name;
  shown.replaceChildren(icon(picture), said ?? words(name));
}
