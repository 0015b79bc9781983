// @ts-check
/** The distributions screen, newest first. */
import { h, keyedList } from "../core/dom.js";
import { formatDateTime, formatNumber, formatTime } from "../core/format.js";
import { ownerScope } from "../core/live-updates.js";
import { href } from "../core/router.js";
import { toAbsoluteUrl } from "../core/url.js";
import { userName } from "../core/user-names.js";
import { icon } from "../ui/icons.js";
import { emptyState } from "../ui/notices.js";
import { progressBar } from "../ui/progress-bar.js";
import { statusBadge } from "../ui/status.js";
import { jobList, jobListBody, tableHead } from "./job-list.js";

export function screen() {
  const list = jobList("/v1/distributions", "distributions", "tidemill.distribute");
  const body = h("tbody");
  keyedList(body, () => list.entries.value, (one) => one.job_id, distributionRow);
  const table = h("table", { class: "cards", "aria-label": "Distributions" }, tableHead(["Distribution", "Dataset", "Status", "Progress", ["Inputs", "right"], ["Generated", "right"], ["Reused", "right"], ["Failed", "right"], "Submitted"]), body);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Distributions"), h("a", { class: "button main-act", href: href("/distributions/new") }, icon("plus"), "New distribution")),
    jobListBody(list, table, emptyList),
  );
}

/** @param {import("../core/signal.js").Signal<any>} one */
function distributionRow(one) {
  const { key, dataset, format } = one.peek();
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, h("a", { href: href(`/distributions/${key}`), class: "mono" }, key), h("small", { class: "muted", hidden: () => ownerScope.value !== "all" }, () => ` ${userName(one.value.user_id)}`)),
    h("td", { data: { label: "Dataset" } }, dataset, " ", h("span", { class: "chip" }, format)),
    h("td", { class: "status-cell" }, () => statusBadge(one.value.status)),
    h("td", { class: "wide-cell" }, progressBar(() => one.value, { thin: true })),
    [["total", "Inputs"], ["files_generated", "Generated"], ["files_reused", "Reused"], ["failed", "Failed"]].map(([name, label]) => h("td", { class: "right", data: { label } }, () => formatNumber(one.value[name]))),
    h("td", { class: "nowrap", data: { label: "Submitted" }, title: () => formatDateTime(one.value.created_at) }, () => formatTime(one.value.created_at)),
  );
}

function emptyList() {
  return emptyState({
    title: "No distributions yet",
    text: "A distribution generates one file per input, such as the prices of an index on a day or the statement of a customer. Each input is retried separately. If an input's data can no longer change, the file from an earlier distribution is reused.",
    actions: [h("a", { class: "button main-act", href: href("/distributions/new") }, icon("plus"), "New distribution")],
    commands: [
      ["With curl", `curl ${toAbsoluteUrl("/v1/distributions")} -H "Authorization: Bearer $KEY" --json '{"dataset": "prices", "inputs": [{"index_key": "ABC", "effective_date": 20240202}]}'`],
      ["From the command line", "tidemill distribute prices inputs.csv --paths paths.ndjson"],
    ],
  });
}
