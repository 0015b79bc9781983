// @ts-check
/** The imports screen, newest first. */
import { serverNow } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { formatDateTime, formatNumber, formatTime } from "../core/format.js";
import { durationText, queuedText } from "../core/job-names.js";
import { ownerScope } from "../core/live-updates.js";
import { liveClock } from "../core/polling.js";
import { href } from "../core/router.js";
import { toAbsoluteUrl } from "../core/url.js";
import { userName } from "../core/user-names.js";
import { icon } from "../ui/icons.js";
import { emptyState } from "../ui/notices.js";
import { progressBar } from "../ui/progress-bar.js";
import { statusBadge } from "../ui/status.js";
import { jobList, jobListBody, tableHead } from "./job-list.js";

export function screen() {
  const list = jobList("/v1/imports", "imports", "tidemill.import");
  const body = h("tbody");
  const at = liveClock(2_000);
  keyedList(body, () => list.entries.value, (one) => one.job_id, (one) => importRow(one, at));
  const table = h("table", { class: "cards", "aria-label": "Imports" }, tableHead(["Import", "File", "Table", "Status", ["Done", "right"], ["Failed", "right"], "Duration", "Submitted"]), body);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Imports"), h("div", { class: "row" }, h("a", { class: "button", href: href("/imports/mappings") }, "Remembered mappings"), h("a", { class: "button main-act", href: href("/imports/new") }, icon("plus"), "Import a file"))),
    jobListBody(list, table, emptyList),
  );
}

/** @param {import("../core/signal.js").Signal<any>} one @param {import("../core/signal.js").Signal<number>} at */
function importRow(one, at) {
  const { key, file_name, resource_type, mode, validate_only } = one.peek();
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, h("a", { href: href(`/imports/${key}`), class: "mono" }, key), h("small", { class: "muted", hidden: () => ownerScope.value !== "all" }, () => ` ${userName(one.value.user_id)}`)),
    h("td", { class: "name-cell narrow", data: { label: "File" }, title: file_name ?? "" }, h("a", { class: "plain", href: href(`/imports/${key}`), tabindex: "-1" }, file_name ?? "–")),
    h("td", { data: { label: "Table" } }, resource_type, " ", h("span", { class: "chip" }, validate_only ? "dry run" : mode)),
    h("td", { class: "status-cell" }, () => statusBadge(one.value.status), progressBar(() => one.value.counts, { thin: true })),
    h("td", { class: "right", data: { label: "Done" } }, () => formatNumber(one.value.counts.done)),
    h("td", { class: "right", data: { label: "Failed" } }, () => formatNumber(one.value.counts.failed)),
    h("td", { class: "nowrap", data: { label: "Duration" }, title: () => (at.value, queuedText(one.value, serverNow())) }, () => (at.value, durationText(one.value, serverNow()))),
    h("td", { class: "nowrap", data: { label: "Submitted" }, title: () => formatDateTime(one.value.created_at) }, () => formatTime(one.value.created_at)),
  );
}

function emptyList() {
  const url = toAbsoluteUrl("/v1/imports");
  return emptyState({
    title: "No imports yet",
    text: "Upload a file to check all rows before any row is written. Rows with errors do not affect the others: download them, fix them and upload them again.",
    actions: [h("a", { class: "button main-act", href: href("/imports/new") }, icon("plus"), "Import a file")],
    areFolded: true,
    commands: [
      ["With curl", `curl "${url}?resource=users&validate_only=true" -H "Authorization: Bearer $KEY" -H 'Content-Type: text/csv' --data-binary @users.csv`],
      ["From the command line", "tidemill import users.csv --into public.users --key email"],
    ],
  });
}
