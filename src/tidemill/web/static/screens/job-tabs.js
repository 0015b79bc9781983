// @ts-check
/** The pending, errors, config and activity tabs of a job. */
import { api, isNotFound } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { formatDateTime, formatNumber } from "../core/format.js";
import { stringify } from "../core/json.js";
import { everyWhileLive } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { queryParam } from "../core/router.js";
import { batch, effect, signal } from "../core/signal.js";
import { userName } from "../core/user-names.js";
import { errorBanners } from "../ui/error-banner.js";
import { clearFiltersButton, dateFilter, statusToggles } from "../ui/filter-bar.js";
import { loadMoreButton } from "../ui/load-more.js";
import { loadingNotice } from "../ui/notices.js";
import { OPEN_ITEM_STATUSES } from "../ui/status.js";
import { itemsView } from "./items.js";
import { adaptiveState, failureCauses } from "./job-overview.js";
import { verbLabel } from "./operation-text.js";
import { DEFAULT_STATUSES, pendingList } from "./pending-list.js";

const PAGE_SIZE = 50;
const RELOAD_MS = 10_000;

/** @param {import("../core/signal.js").Signal<any>} job */
export function pendingView(job) {
  const countOpen = (/** @type {string[]} */ statuses) => statuses.reduce((sum, name) => sum + job.value.counts[name], 0);
  const [from, to] = [queryParam("from"), queryParam("to")];
  const isDated = () => Boolean(from.value || to.value); // there are no counters by day
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "filters" }, statusToggles("statuses", "Status", () => OPEN_ITEM_STATUSES.map((value) => ({ value, count: isDated() ? null : job.value.counts[value] })), DEFAULT_STATUSES), dateFilter("from", "Updated from"), dateFilter("to", "to"), clearFiltersButton(["statuses", "from", "to"])),
    pendingList({ job, jobOf: () => job.value, countOpen }),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job @param {() => void} changed */
export function errorsView(job, changed) {
  return h("div", { class: "screen" }, failureCauses(job, changed), itemsView(job, changed, ["failed"]));
}

/** @param {import("../core/signal.js").Signal<any>} job */
export function configView(job) {
  /** @type {Array<[name: string, read: () => string | null | undefined]>} */
  const facts = [
    ["ID", () => job.value.id],
    ["Kind", () => job.value.kind],
    ["Priority", () => String(job.value.priority)],
    ["Owner", () => userName(job.value.user_id)],
    ["Submitted", () => formatDateTime(job.value.created_at)],
    ["Closed", () => formatDateTime(job.value.closed_at)],
    ["IP address", () => job.value.ip_address],
    ["Request", () => job.value.request_id],
    ["Trace", () => job.value.traceparent],
    ["File", () => job.value.file_name],
    ["File ID", () => job.value.file_id],
    ["Retried attempts", () => formatNumber(job.value.retried)],
    ["Columns", () => job.value.columns.join(", ")],
  ];
  return h(
    "div",
    { class: "columns" },
    h("section", { class: "card" }, h("h2", null, "Details"), h("dl", { class: "facts" }, facts.map(([name, read]) => [h("dt", { hidden: () => !read() }, name), h("dd", { hidden: () => !read() }, read)]))),
    h("section", { class: "card stack" }, h("h2", null, "Parameters"), h("pre", { class: "json", tabindex: "0" }, () => stringify(job.value.params, 2)), h("h2", null, "Failure policy"), h("pre", { class: "json", tabindex: "0" }, () => stringify(job.value.policy, 2))),
    h("details", { class: "card" }, h("summary", null, h("h2", null, "Adaptive state")), adaptiveState(job)),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job */
export function activityView(job) {
  const path = `/v1/jobs/${job.peek().id}/activity`;
  const first = remoteData((signal) => api.get(path, { page_size: PAGE_SIZE }, signal));
  const all = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));
  effect(() => {
    const page = first.data.value;
    if (page === null) return;
    const newest = all.peek()[0]?.id ?? -1;
    const fresh = page.activity.filter((/** @type {any} */ one) => one.id > newest);
    batch(() => {
      // Keep the entries of further pages, unless there would be a gap.
      const isWhole = fresh.length === page.activity.length;
      all.value = isWhole ? fresh : [...fresh, ...all.peek()];
      if (isWhole) next.value = page.next_page ?? null;
    });
  });
  const shown = job.peek();
  effect(() => {
    if (job.value !== shown) first.reloadSoon(1_000); // most actions change the job
  });
  everyWhileLive(() => first.reloadSoon(0), RELOAD_MS); // some actions do not, such as an export
  const more = loadMoreButton(next, () => path, (after, signal) => api.get(path, { page_size: PAGE_SIZE, after }, signal), (page) =>
    batch(() => {
      all.value = [...all.peek(), ...page.activity];
      next.value = page.next_page ?? null;
    }),
  );
  const body = keyedList(h("tbody"), () => all.value, (one) => one.id, (entry) => activityRow(entry.peek()));
  return h(
    "section",
    { class: "card stack" },
    h("h2", null, "Activity log"),
    errorBanners([first], isNotFound),
    () => (first.data.value === null && !first.error.value ? loadingNotice() : null),
    h("p", { class: "muted", hidden: () => first.data.value === null || all.value.length > 0 }, "No actions since this job was submitted."),
    h("div", { class: "table-box", hidden: () => all.value.length === 0 }, h("table", { "aria-label": "Activity" }, h("thead", null, h("tr", null, ["Time", "User", "Action", "Details"].map((one) => h("th", { scope: "col" }, one)))), body)),
    more,
  );
}

/** @param {any} one */
function activityRow(one) {
  return h("tr", null, h("td", { class: "nowrap" }, formatDateTime(one.at)), h("td", null, () => userName(one.user_id)), h("td", null, verbLabel(one.verb)), h("td", { class: "mono small" }, Object.keys(one.details).length ? stringify(one.details) : ""));
}
