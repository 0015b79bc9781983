// @ts-check
/** One row that waits, in a drawer: why, since when, and what can be done about it. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, moment, titleOf, wholeMoment } from "../core/format.js";
import { href } from "../core/router.js";
import { openDrawer } from "../ui/drawer.js";
import { copyButton } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { status } from "../ui/status.js";
import { tellIfFails } from "../ui/toast.js";
import { whyOf } from "./pending-list.js";
import { processNow } from "./process-now.js";

/** @param {any} row @param {{runNow: () => void, focusBack: () => void, changed: () => void}} how */
export function openWaiting(row, how) {
  const process = async () => {
    const job = await tellIfFails(() => api.get(`/v1/jobs/${row.job_id}`));
    if (job) await processNow(job, how.changed);
  };
  /** @type {Array<[string, any]>} */
  const facts = [
    ["Item ID", h("span", { class: "mono" }, row.id)],
    ["Job", h("a", { href: href(`/jobs/${row.job_key}`) }, row.job_key)],
    ["Job type", h("span", { class: "chip" }, row.kind)],
    ["Job is", status(row.job_status)],
    ["Title / brand", titleOf(row.input_summary) || "–"],
    ["Attempts so far", String(row.attempts)],
    ["Locked by", row.locked_by ? `${row.locked_by}, since ${moment(row.locked_at)}` : "nobody"],
    ["Due", row.due_at ? wholeMoment(row.due_at) : "–"],
    ["As it is since", wholeMoment(row.updated_at)],
  ];
  const isHeld = row.status === "processing";
  openDrawer(
    `Row ${count(row.seq + 1)} of ${row.job_key}`,
    () => [
      h("div", { class: "row between" }, status(row.status), copyButton(row.id, "Copy the item's id", "Copy id")),
      h("p", { class: "notice", data: { tone: "plain" } }, whyOf(row)),
      h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
      row.error ? h("div", { class: "stack tight" }, h("h3", null, "What went wrong the last time"), h("p", null, h("strong", null, row.error.code), " ", row.error.reason ?? "")) : null,
      h(
        "div",
        { class: "row" },
        h("a", { class: "button main-act", href: href(`/jobs/${row.job_key}`) }, icon("stack"), "Go to job"),
        h("button", { type: "button", disabled: isHeld, title: isHeld ? "A worker has it in hand" : null, on: { click: how.runNow } }, icon("retry"), "Run this row now"),
        h("button", { type: "button", on: { click: process } }, icon("play"), "Process its job now …"),
      ),
      isHeld ? h("p", { class: "hint" }, `Worker ${row.locked_by} has it in hand: there is nothing to hasten.`) : null,
    ],
    { onClose: how.focusBack },
  );
}
