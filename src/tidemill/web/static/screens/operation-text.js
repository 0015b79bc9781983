// @ts-check
/** Describes bulk operations and reports their progress. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatTime, humanize, pluralize } from "../core/format.js";
import { pollUntil } from "../core/polling.js";
import { href } from "../core/router.js";
import { userName } from "../core/user-names.js";
import { showToast } from "../ui/toast.js";

const VERB_LABELS = { redrive: "retry", reprocess: "run again" };
const DEAD_LETTER_VERBS = ["redrive", "dismiss", "restore"];
/** The past tense of each verb, and the text if no row was left. @type {Record<string, [string, string]>} */
const RESULT_TEXTS = {
  cancel: ["Cancelled", "No waiting rows were left. "],
  dismiss: ["Dismissed", "No rows were left to dismiss. "],
  restore: ["Restored", "No dismissed rows were left. "],
  undo: ["Undone:", "No rows were reversed. "],
  redo: ["Redone:", "No rows were restored. "],
};
/** The categories of failed items, as in the API. */
export const CATEGORY_LABELS = { handler: "handler failures", invalid_row: "invalid import rows", dry_run: "dry-run rows" };

/** The label of an action: "retry" for failed rows, "run again" for other rows. @param {string} verb @param {any} [predicate] */
export function verbLabel(verb, predicate) {
  if (verb === "reprocess" && predicate?.statuses?.length === 1 && predicate.statuses[0] === "failed") return VERB_LABELS.redrive;
  return /** @type {any} */ (VERB_LABELS)[verb] ?? humanize(verb);
}

/** Describes which rows an operation covers. @param {any} operation */
export function describePredicate(operation) {
  const predicate = operation.predicate;
  const parts = [];
  if (operation.verb === "repair") return `failed rows with the error ${predicate.cause}${predicate.column ? `, column ${predicate.column}` : ""}, rule: ${humanize(predicate.rule.type)}`;
  if (operation.verb === "undo" || operation.verb === "redo") return `the rows that an import wrote: ${pluralize(predicate.rows, "row")}`;
  const named = predicate.items ? Object.values(predicate.items).reduce((/** @type {number} */ sum, /** @type {any} */ seqs) => sum + seqs.length, 0) : predicate.seqs && predicate.seqs.length + (predicate.ranges ?? []).reduce((/** @type {number} */ sum, /** @type {number[]} */ [first, last]) => sum + last - first + 1, 0);
  if (named !== undefined && named !== null) parts.push(pluralize(/** @type {number} */ (named), "selected row"));
  else if (DEAD_LETTER_VERBS.includes(operation.verb)) parts.push(operation.verb === "restore" ? "all matching dismissed items" : "all matching failed items");
  else parts.push(`all rows with status ${(predicate.statuses ?? []).map(humanize).join(" or ")}`);
  if (predicate.key) parts.push(predicate.key.endsWith("*") ? `an input value starts with ${predicate.key.slice(0, -1)}` : `an input value is ${predicate.key}`);
  if (predicate.codes?.length) parts.push(`error code is ${predicate.codes.join(" or ")}`);
  if (predicate.category) parts.push(/** @type {any} */ (CATEGORY_LABELS)[predicate.category] ?? predicate.category);
  if (predicate.group) parts.push("in one error group");
  if (predicate.kind) parts.push(`kind is ${predicate.kind}`);
  if (predicate.jobs?.length) parts.push(pluralize(predicate.jobs.length, "job"));
  if (predicate.since) parts.push(`failed at or after ${formatTime(predicate.since)}`);
  if (predicate.until) parts.push(`failed before ${formatTime(predicate.until)}`);
  const but = predicate.but?.length ?? Object.values(predicate.except ?? {}).reduce((/** @type {number} */ sum, /** @type {any} */ seqs) => sum + seqs.length, 0);
  if (but) parts.push(`except ${pluralize(but, "row")}`);
  if (DEAD_LETTER_VERBS.includes(operation.verb) && predicate.owner_id === null) parts.push("jobs of all users");
  else if (DEAD_LETTER_VERBS.includes(operation.verb) && predicate.owner_id !== operation.user_id) parts.push(`jobs of ${userName(predicate.owner_id)}`);
  if (predicate.reset_attempts === false) parts.push("permanent failures not included");
  return parts.join(", ");
}

/**
 * Polls an operation until it is finished.
 * @param {any} operation as in the response
 * @param {(operation: any) => void} [step]
 * @param {AbortSignal} [stop]
 */
async function pollOperation(operation, step, stop) {
  step?.(operation);
  if (operation.state !== "running") return operation;
  return pollUntil(() => api.get(`/v1/operations/${operation.id}`, {}, stop), (now) => now.state !== "running", { signal: stop, onStep: step });
}

/** Shows a toast with the result of an operation, and a link to it. @param {any} operation */
export async function reportOperation(operation) {
  const link = () => h("a", { href: href(`/operations/${operation.id}`) }, "Show the operation");
  const waiting = operation.state === "running" ? showToast(["The operation runs in the background. ", link()]) : null;
  const now = await pollOperation(operation);
  waiting?.remove();
  if (now.state === "cancelled") showToast([`The operation was cancelled after ${pluralize(now.items, "row")}. `, link()]);
  else if (now.state === "failed") showToast([`The operation failed after ${pluralize(now.items, "row")}: ${now.error}. `, link()], "bad");
  else {
    const verb = now.verb === "repair" && now.predicate.rule.type === "drop" ? "dismiss" : now.verb;
    const [done, nothing] = RESULT_TEXTS[verb] ?? ["Requeued", "No rows were left to requeue. "];
    if (now.items === 0) showToast([nothing, link()]);
    else showToast([`${done} ${pluralize(now.items, "row")}. ${now.unchanged ? `${now.verb === "repair" ? "The rule did not change" : "Not reversed:"} ${pluralize(now.unchanged, "row")}. ` : ""}`, link()], "ok");
  }
  return now;
}
