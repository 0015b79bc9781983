// @ts-check
/** Bulk actions in words: what was asked for, by whom, and how far it is. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { counted, moment, words } from "../core/format.js";
import { until } from "../core/load.js";
import { href } from "../core/router.js";
import { userName } from "../core/users.js";
import { toast } from "../ui/toast.js";

/** What it was asked to do, as a sentence. @param {any} operation */
export function predicateWords(operation) {
  const asked = operation.predicate;
  const parts = [];
  const named = asked.items ? Object.values(asked.items).reduce((/** @type {number} */ sum, /** @type {any} */ seqs) => sum + seqs.length, 0) : asked.seqs && asked.seqs.length + (asked.ranges ?? []).reduce((/** @type {number} */ sum, /** @type {number[]} */ [first, last]) => sum + last - first + 1, 0);
  if (named !== undefined && named !== null) parts.push(counted(/** @type {number} */ (named), "chosen row"));
  else if (operation.verb === "redrive") parts.push("all dead letters that match");
  else parts.push(`all rows that are ${(asked.statuses ?? []).map(words).join(" or ")}`);
  if (asked.key) parts.push(asked.key.endsWith("*") ? `key begins with ${asked.key.slice(0, -1)}` : `key is ${asked.key}`);
  if (asked.codes?.length) parts.push(`cause is ${asked.codes.join(" or ")}`);
  if (asked.kind) parts.push(`kind is ${asked.kind}`);
  if (asked.jobs?.length) parts.push(counted(asked.jobs.length, "job"));
  if (asked.since) parts.push(`failed from ${moment(asked.since)}`);
  if (asked.until) parts.push(`failed before ${moment(asked.until)}`);
  const but = asked.but?.length ?? Object.values(asked.except ?? {}).reduce((/** @type {number} */ sum, /** @type {any} */ seqs) => sum + seqs.length, 0);
  if (but) parts.push(`but ${counted(but, "row")}`);
  if (operation.verb === "redrive" && asked.owner_id === null) parts.push("of everybody");
  else if (operation.verb === "redrive" && asked.owner_id !== operation.user_id) parts.push(`of ${userName(asked.owner_id)}`);
  if (asked.reset_attempts === false) parts.push("only with attempts left");
  return parts.join(", ");
}

/**
 * Ask how far an operation is until it is over.
 * @param {any} operation as the service answered
 * @param {(operation: any) => void} [step]
 * @param {AbortSignal} [stop]
 */
export async function followOperation(operation, step, stop) {
  step?.(operation);
  if (operation.state !== "running") return operation;
  return until(() => api.get(`/v1/operations/${operation.id}`, {}, stop), (now) => now.state !== "running", { signal: stop, step });
}

/** Say how an operation ended, with the way to it. @param {any} operation */
export async function tellOperation(operation) {
  const link = () => h("a", { href: href(`/operations/${operation.id}`) }, "Show the operation");
  const waiting = operation.state === "running" ? toast(["It goes on by itself. ", link()]) : null;
  const now = await followOperation(operation);
  waiting?.remove();
  if (now.state === "failed") toast([`It stopped after ${counted(now.items, "row")}: ${now.error}. `, link()], "bad");
  else if (now.items === 0) toast([now.verb === "cancel" ? "Nothing waited any more. " : "Nothing was left to send round. ", link()]);
  else toast([`${counted(now.items, "row")} ${now.verb === "cancel" ? "cancelled" : "sent round again"}. `, link()], "ok");
  return now;
}
