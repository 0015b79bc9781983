// @ts-check
/** Exports: files that were made of tables and of jobs, the newest first. */
import { api, now } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { bytes, count, duration, wholeMoment } from "../core/format.js";
import { cellText } from "../core/json.js";
import { ticking } from "../core/load.js";
import { address, wholeAddress } from "../core/place.js";
import { href } from "../core/router.js";
import { scope } from "../core/sse.js";
import { userName } from "../core/users.js";
import { confirmDialog } from "../ui/dialog.js";
import { copyButton, empty } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { isClosed, status } from "../ui/status.js";
import { listBody, listing, tableHead } from "./listing.js";

export function screen() {
  const list = listing("/v1/exports", "exports", "tidemill.export");
  const at = ticking(5_000);
  const body = h("tbody");
  each(body, () => list.entries.value, (one) => one.job_id, (one) => line(one, at, list.put));
  const table = h("table", { "aria-label": "Exports" }, tableHead(["Export", "Of", "Format", ["Rows", "right"], ["Size", "right"], "Status", "Expires", ""]), body);
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Exports"), h("a", { class: "button main-act", href: href("/exports/new") }, icon("plus"), "New export")),
    listBody(list, table, nothing),
  );
}

/** @param {import("../core/signal.js").Signal<any>} one @param {import("../core/signal.js").Signal<number>} at @param {(entry: any) => void} put */
function line(one, at, put) {
  const { key, format, compression, resource_type } = one.peek();
  const isGone = () => Boolean(one.value.expires_at) && Date.parse(one.value.expires_at) <= at.value;
  const isThere = () => Boolean(one.value.download_url) && !isGone();
  const isOver = () => isClosed(one.value.status) || one.value.status === "cancelling";
  const file = () => `/v1/exports/${one.peek().job_id}/download`;
  const stop = () =>
    confirmDialog({
      title: `Cancel ${key}?`,
      says: [h("p", null, "Nothing of its file is kept.")],
      act: "Cancel the export",
      isDanger: true,
      run: async () => put(await api.post(`/v1/exports/${one.peek().job_id}/cancel`)),
    });
  return h(
    "tr",
    null,
    h("th", { scope: "row", title: () => `made ${wholeMoment(one.value.completed_at)}` }, h("a", { href: href(`/jobs/${key}`), class: "mono" }, key), h("small", { class: "muted", hidden: () => scope.value !== "all" }, () => ` ${userName(one.value.user_id)}`)),
    h("td", { class: "name-cell", title: filterText(one.peek()) }, resource_type === "job" ? "results of a job" : resource_type, h("small", { class: "muted" }, filterText(one.peek()) ? ` ${filterText(one.peek())}` : "")),
    h("td", null, h("span", { class: "chip" }, compression === "none" ? format : `${format}, ${compression}`)),
    h("td", { class: "right" }, () => (one.value.record_count === null ? "–" : count(one.value.record_count))),
    h("td", { class: "right nowrap" }, () => bytes(one.value.size)),
    h("td", null, () => status(one.value.status), () => (one.value.failure_reason ? h("div", { class: "fault" }, one.value.failure_reason) : null)),
    h("td", { class: "nowrap", title: () => wholeMoment(one.value.expires_at) }, () => (at.value, expiry(one.value))),
    h(
      "td",
      null,
      h(
        "div",
        { class: "row acts-cell" },
        // Hidden, not made anew with every news: what somebody is about to press stays under the pointer.
        h("span", { class: "row", hidden: () => !isThere() }, h("a", { class: "button small", href: address(file()), download: "", "aria-label": `Download ${key}` }, icon("down"), "Download"), copyButton(wholeAddress(file()), `Copy the link to ${key}`, "Copy link")),
        h("button", { type: "button", class: "small danger", "aria-label": `Cancel ${key}`, hidden: isOver, on: { click: stop } }, icon("ban"), "Cancel …"),
      ),
    ),
  );
}

/** The conditions in words. @param {any} one */
function filterText(one) {
  /** @param {any} value */
  const shown = (value) => (Array.isArray(value) ? value : [value]).map(cellText).join(", ");
  return Object.entries(one.filters)
    .flatMap(([field, said]) => (said !== null && typeof said === "object" && !Array.isArray(said) ? Object.entries(said).map(([op, value]) => `${field} ${op.replaceAll("_", " ")} ${shown(value)}`) : [`${field} eq ${shown(said)}`]))
    .join("; ");
}

/** @param {any} one */
function expiry(one) {
  if (!one.expires_at || !one.download_url) return "–";
  const left = (Date.parse(one.expires_at) - now()) / 1000;
  return left > 0 ? `in ${duration(left)}` : "expired";
}

function nothing() {
  const url = wholeAddress("/v1/exports");
  return empty({
    title: "No exports yet",
    says: "Rows of a table, as they were at one moment, as a file that is whole or not there. It is kept for a while, and can be imported again. Results of jobs are exported from their own screens, and listed here.",
    acts: [h("a", { class: "button main-act", href: href("/exports/new") }, icon("plus"), "New export")],
    recipes: [
      ["Streamed, with curl", `curl -g "${url}?resource=users&format=csv&filter[role][in]=admin,editor" -H "Authorization: Bearer $KEY" > users.csv`],
      ["From the command line", "tidemill export public.users --where 'role[in]=admin,editor' -o users.csv.gz"],
    ],
  });
}
