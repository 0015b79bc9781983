// @ts-check
/** One pending item in a drawer: why it waits, since when, and what the user can do. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatDateTime, formatNumber, formatTime, localizeTimes, summaryText } from "../core/format.js";
import { href } from "../core/router.js";
import { copyButton } from "../ui/copy-button.js";
import { openDrawer } from "../ui/drawer.js";
import { icon } from "../ui/icons.js";
import { statusBadge } from "../ui/status.js";
import { toastOnError } from "../ui/toast.js";
import { processNow } from "./process-now.js";

/** @param {any} row @param {{runNow: () => void, focusBack: () => void, changed: () => void}} options */
export function openPendingItem(row, options) {
  const process = async () => {
    const job = await toastOnError(() => api.get(`/v1/jobs/${row.job_id}`));
    if (job) await processNow(job, options.changed);
  };
  /** @type {Array<[string, any]>} */
  const facts = [
    ["Item ID", h("span", { class: "mono" }, row.id)],
    ["Job", h("a", { href: href(`/jobs/${row.job_key}`) }, row.job_key)],
    ["Kind", h("span", { class: "chip" }, row.kind)],
    ["Job status", statusBadge(row.job_status)],
    ["Input", summaryText(row.input_summary) || "–"],
    ["Attempts so far", String(row.attempts)],
    ["Worker", row.locked_by ? `${row.locked_by}, since ${formatTime(row.locked_at)}` : "–"],
    ["Due", row.due_at ? formatDateTime(row.due_at) : "–"],
    ["Status since", formatDateTime(row.updated_at)],
  ];
  const isHeld = row.status === "processing";
  openDrawer(
    `Row ${formatNumber(row.seq + 1)} of ${row.job_key}`,
    () => [
      h("div", { class: "row between" }, statusBadge(row.status), copyButton(row.id, "Copy the item ID", "Copy ID")),
      h("p", { class: "notice", data: { tone: "plain" } }, waitReason(row)),
      h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
      row.error ? h("div", { class: "stack tight" }, h("h3", null, "Last error"), h("p", null, h("strong", null, row.error.code), " ", row.error.reason ?? "")) : null,
      h(
        "div",
        { class: "row" },
        h("a", { class: "button main-act", href: href(`/jobs/${row.job_key}`) }, icon("stack"), "Go to job"),
        h("button", { type: "button", disabled: isHeld, title: isHeld ? "A worker is processing this row" : null, on: { click: options.runNow } }, icon("play"), "Run this row now"),
        h("button", { type: "button", on: { click: process } }, icon("bolt"), "Process job now …"),
      ),
      isHeld ? h("p", { class: "hint" }, `Worker ${row.locked_by} is processing this row.`) : null,
    ],
    { onClose: options.focusBack },
  );
}

/** @param {any} row */
export function waitReason(row) {
  const isBackoff = row.status === "retry_wait" && row.why.startsWith("Waiting for its retry");
  return localizeTimes(row.why) + (isBackoff && row.error?.code ? `, after ${row.error.code}` : "");
}
