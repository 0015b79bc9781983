// @ts-check
/** Imports, the newest first. */
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
  const list = listing("/v1/imports", "imports", "tidemill.import");
  const body = h("tbody");
  each(body, () => list.entries.value, (one) => one.job_id, line);
  const table = h("table", { "aria-label": "Imports" }, tableHead(["Import", "File", "Into", "Status", "Progress", ["Good", "right"], ["Failed", "right"], "Submitted"]), body);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Imports"), h("a", { class: "button main-act", href: href("/imports/new") }, icon("plus"), "Import a file")),
    listBody(list, table, nothing),
  );
}

/** @param {import("../core/signal.js").Signal<any>} one */
function line(one) {
  const { key, file_name, resource_type, mode, validate_only } = one.peek();
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, h("a", { href: href(`/imports/${key}`), class: "mono" }, key), h("small", { class: "muted", hidden: () => scope.value !== "all" }, () => ` ${userName(one.value.user_id)}`)),
    h("td", { class: "name-cell", title: file_name ?? "" }, file_name ?? "–"),
    h("td", { class: "nowrap" }, resource_type, " ", h("span", { class: "chip" }, validate_only ? "trial" : mode)),
    h("td", null, () => status(one.value.status)),
    h("td", { class: "wide-cell" }, progressBar(() => one.value.counts, { thin: true })),
    h("td", { class: "right" }, () => count(one.value.counts.done)),
    h("td", { class: "right" }, () => count(one.value.counts.failed)),
    h("td", { class: "nowrap", title: () => wholeMoment(one.value.created_at) }, () => moment(one.value.created_at)),
  );
}

function nothing() {
  const url = wholeAddress("/v1/imports");
  return empty({
    title: "No imports yet",
    says: "Drop a file, and see what is wrong with it before a single row is written. Rows that fail never take others along: you get them back, mend them, and send them again.",
    acts: [h("a", { class: "button main-act", href: href("/imports/new") }, icon("plus"), "Import a file")],
    recipes: [
      ["With curl", `curl "${url}?resource=users&validate_only=true" -H "Authorization: Bearer $KEY" -H 'Content-Type: text/csv' --data-binary @users.csv`],
      ["From the command line", "tidemill import users.csv --into public.users --key email"],
    ],
  });
}
