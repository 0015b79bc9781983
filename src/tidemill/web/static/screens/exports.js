// @ts-check
/** The exports screen: files with rows of tables and results of jobs, newest first. */
import { api, serverNow } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { formatBytes, formatDateTime, formatDuration, formatNumber } from "../core/format.js";
import { cellText } from "../core/json.js";
import { ownerScope } from "../core/live-updates.js";
import { liveClock } from "../core/polling.js";
import { href } from "../core/router.js";
import { toAbsoluteUrl, toUrl } from "../core/url.js";
import { userName } from "../core/user-names.js";
import { copyButton } from "../ui/copy-button.js";
import { confirmDialog } from "../ui/dialog.js";
import { icon } from "../ui/icons.js";
import { emptyState } from "../ui/notices.js";
import { isClosed, statusBadge } from "../ui/status.js";
import { jobList, jobListBody, tableHead } from "./job-list.js";

export function screen() {
  const list = jobList("/v1/exports", "exports", "tidemill.export");
  const at = liveClock(5_000);
  const body = h("tbody");
  keyedList(body, () => list.entries.value, (one) => one.job_id, (one) => exportRow(one, at, list.replaceEntry));
  const table = h("table", { class: "cards", "aria-label": "Exports" }, tableHead(["Export", "Data", "Format", ["Rows", "right"], ["Size", "right"], "Status", "Expires", ""]), body);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Exports"), h("a", { class: "button main-act", href: href("/exports/new") }, icon("plus"), "New export")),
    jobListBody(list, table, emptyList),
  );
}

/** @param {import("../core/signal.js").Signal<any>} one @param {import("../core/signal.js").Signal<number>} at @param {(entry: any) => void} put */
function exportRow(one, at, put) {
  const { key, format, compression, resource_type } = one.peek();
  const isGone = () => Boolean(one.value.expires_at) && Date.parse(one.value.expires_at) <= at.value;
  const isThere = () => Boolean(one.value.download_url) && !isGone();
  const isOver = () => isClosed(one.value.status) || one.value.status === "cancelling";
  const file = () => `/v1/exports/${one.peek().job_id}/download`;
  const stop = () =>
    confirmDialog({
      title: `Cancel ${key}?`,
      content: [h("p", null, "The incomplete file is discarded.")],
      actionLabel: "Cancel the export",
      isDanger: true,
      run: async () => put(await api.post(`/v1/exports/${one.peek().job_id}/cancel`)),
    });
  return h(
    "tr",
    null,
    h("th", { scope: "row", title: () => `Completed ${formatDateTime(one.value.completed_at)}` }, h("a", { href: href(`/jobs/${key}`), class: "mono" }, key), h("small", { class: "muted", hidden: () => ownerScope.value !== "all" }, () => ` ${userName(one.value.user_id)}`)),
    h("td", { class: "name-cell", data: { label: "Data" }, title: filterText(one.peek()) }, resource_type === "job" ? "job results" : resource_type, h("small", { class: "muted" }, filterText(one.peek()) ? ` ${filterText(one.peek())}` : "")),
    h("td", { data: { label: "Format" } }, h("span", { class: "chip" }, compression === "none" ? format : `${format}, ${compression}`)),
    h("td", { class: "right", data: { label: "Rows" } }, () => (one.value.record_count === null ? "–" : formatNumber(one.value.record_count))),
    h("td", { class: "right nowrap", data: { label: "Size" } }, () => formatBytes(one.value.size)),
    h("td", { class: "status-cell" }, () => statusBadge(one.value.status), () => (one.value.failure_reason ? h("div", { class: "fault" }, one.value.failure_reason) : null)),
    h("td", { class: "nowrap", data: { label: "Expires" }, title: () => formatDateTime(one.value.expires_at) }, () => (at.value, expiryText(one.value))),
    h(
      "td",
      null,
      h(
        "div",
        { class: "row acts-cell" },
        // Hide the buttons instead of rendering them again, so that they stay under the pointer.
        h("span", { class: "row", hidden: () => !isThere() }, h("a", { class: "button small", href: toUrl(file()), download: "", "aria-label": `Download ${key}` }, icon("down"), "Download"), copyButton(toAbsoluteUrl(file()), `Copy the link to ${key}`, "Copy link")),
        h("button", { type: "button", class: "small danger", "aria-label": `Cancel ${key}`, hidden: isOver, on: { click: stop } }, icon("ban"), "Cancel …"),
      ),
    ),
  );
}

/** Describes the conditions. @param {any} one */
function filterText(one) {
  /** @param {any} value */
  const shown = (value) => (Array.isArray(value) ? value : [value]).map(cellText).join(", ");
  return Object.entries(one.filters)
    .flatMap(([field, conditions]) => (conditions !== null && typeof conditions === "object" && !Array.isArray(conditions) ? Object.entries(conditions).map(([op, value]) => `${field} ${op.replaceAll("_", " ")} ${shown(value)}`) : [`${field} eq ${shown(conditions)}`]))
    .join("; ");
}

/** @param {any} one */
function expiryText(one) {
  if (!one.expires_at || !one.download_url) return "–";
  const left = (Date.parse(one.expires_at) - serverNow()) / 1000;
  return left > 0 ? `in ${formatDuration(left)}` : "expired";
}

function emptyList() {
  const url = toAbsoluteUrl("/v1/exports");
  return emptyState({
    title: "No exports yet",
    text: "An export is a file with the rows of a table at one point in time. It is kept until it expires and can be imported again. To export the results of a job, open the job; the file is listed here too.",
    actions: [h("a", { class: "button main-act", href: href("/exports/new") }, icon("plus"), "New export")],
    commands: [
      ["Stream with curl", `curl -g "${url}?resource=users&format=csv&filter[role][in]=admin,editor" -H "Authorization: Bearer $KEY" > users.csv`],
      ["From the command line", "tidemill export public.users --where 'role[in]=admin,editor' -o users.csv.gz"],
    ],
  });
}
