// @ts-check
/** Distributions: a file for each of many inputs; the newest first. */
import { each, h } from "../core/dom.js";
import { count, moment, wholeMoment } from "../core/format.js";
import { wholeAddress } from "../core/place.js";
import { href } from "../core/router.js";
import { scope } from "../core/sse.js";
import { userName } from "../core/users.js";
import { empty } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { progressBar } from "../ui/progress.js";
import { status } from "../ui/status.js";
import { listBody, listing, tableHead } from "./listing.js";

export function screen() {
  const list = listing("/v1/distributions", "distributions", "tidemill.distribute");
  const body = h("tbody");
  each(body, () => list.entries.value, (one) => one.job_id, line);
  const table = h("table", { "aria-label": "Distributions" }, tableHead(["Distribution", "Dataset", "Status", "Progress", ["Inputs", "right"], ["Generated", "right"], ["Reused", "right"], ["Failed", "right"], "Submitted"]), body);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Distributions"), h("a", { class: "button main-act", href: href("/distributions/new") }, icon("plus"), "New distribution")),
    listBody(list, table, nothing),
  );
}

/** @param {import("../core/signal.js").Signal<any>} one */
function line(one) {
  const { key, dataset, format } = one.peek();
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, h("a", { href: href(`/distributions/${key}`), class: "mono" }, key), h("small", { class: "muted", hidden: () => scope.value !== "all" }, () => ` ${userName(one.value.user_id)}`)),
    h("td", null, dataset, " ", h("span", { class: "chip" }, format)),
    h("td", null, () => status(one.value.status)),
    h("td", { class: "wide-cell" }, progressBar(() => one.value, { thin: true })),
    ["total", "files_generated", "files_reused", "failed"].map((name) => h("td", { class: "right" }, () => count(one.value[name]))),
    h("td", { class: "nowrap", title: () => wholeMoment(one.value.created_at) }, () => moment(one.value.created_at)),
  );
}

function nothing() {
  return empty({
    title: "No distributions yet",
    says: "One input, one file: prices of an index on a day, the statement of a customer. Each is retried by itself, and a file that cannot have changed is used again.",
    acts: [h("a", { class: "button main-act", href: href("/distributions/new") }, icon("plus"), "New distribution")],
    recipes: [
      ["With curl", `curl ${wholeAddress("/v1/distributions")} -H "Authorization: Bearer $KEY" --json '{"dataset": "prices", "inputs": [{"index_key": "ABC", "effective_date": 20240202}]}'`],
      ["From the command line", "tidemill distribute prices inputs.csv --paths paths.ndjson"],
    ],
  });
}
