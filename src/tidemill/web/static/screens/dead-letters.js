// @ts-check
/** The failed items screen (dead letters in the API): items that failed permanently, grouped by error code. */
import { api } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { findJob } from "../core/find-job.js";
import { formatAge, formatDateTime, formatNumber, pluralize, startOfDay } from "../core/format.js";
import { onJobUpdates, ownerScope } from "../core/live-updates.js";
import { liveClock } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { query, queryParam, setQuery } from "../core/router.js";
import { computed, effect, effectScope, onCleanup, untracked } from "../core/signal.js";
import { stableOrder } from "../core/stable-order.js";
import { toAbsoluteUrl } from "../core/url.js";
import { clearFiltersButton, dateFilter, searchFilter, selectFilter } from "../ui/filter-bar.js";
import { icon } from "../ui/icons.js";
import { emptyState, errorNotice, loadingNotice } from "../ui/notices.js";
import { singleFlight } from "../ui/single-flight.js";
import { toastOnError } from "../ui/toast.js";
import { deadLetterGrid } from "./dead-letter-grid.js";
import { redriveAll, redriveOne } from "./redrive.js";

const FILTERS = ["cause", "type", "job", "from", "to"];

export function screen() {
  const [cause, kind, from, to] = ["cause", "type", "from", "to"].map(queryParam);
  const found = findJob(queryParam("job"));
  const causes = remoteData(async (signal) => {
    const job = found.value;
    const params = { user_id: ownerScope.value, kind: kind.value, job_id: job?.id };
    return job === null || job.problem ? null : await api.get("/v1/dead-letters/causes", params, signal);
  });
  onJobUpdates(() => causes.reloadSoon(3_000)); // also when all failed items of a job were requeued
  const at = liveClock(5_000);
  const isDated = () => from.value !== "" || to.value !== "";
  /** @param {string} [code] */
  const filter = (code) => /** @type {import("./redrive.js").DeadFilter} */ (JSON.parse(JSON.stringify({ error_codes: code ? [code] : undefined, kind: kind.value || undefined, job_id: found.value?.id ?? undefined, from: startOfDay(from.value) ?? undefined, to: startOfDay(to.value, 1) ?? undefined })));
  const key = computed(() => (found.value === null ? "" : found.value.problem ? "none" : JSON.stringify([filter(cause.value), ownerScope.value])));
  const job = () => found.peek()?.job?.key;

  /** @param {string} code */
  const matching = (code) => ({ n: causes.data.value?.find((/** @type {any} */ one) => one.code === code)?.count ?? 0, isExact: !isDated() });
  const total = () => (causes.data.value ?? []).reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.count, 0);
  const known = remoteData((signal) => api.get("/v1/jobs", { statuses: ["completed_with_errors", "failed", "running"], user_id: ownerScope.value, page_size: 100 }, signal));
  const kinds = () => [...new Set((known.data.value?.jobs ?? []).map((/** @type {any} */ one) => one.kind))].toSorted().map((value) => ({ value, label: value }));

  const rows = h("div", { class: "screen" });
  let end = () => {};
  effect(() => {
    const now = key.value;
    const code = cause.value;
    end();
    end = () => {};
    rows.replaceChildren();
    if (!code || now === "" || now === "none") return;
    untracked(() => {
      const [made, over] = effectScope(() => deadLetterGrid(code, filter(code), () => matching(code), { job: job(), done: causes.reload }));
      end = over;
      rows.replaceChildren(made);
    });
  });
  onCleanup(() => end());

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", null, "Failed items"), h("span", { class: "muted", role: "status" }, () => (causes.data.value ? `${pluralize(total(), "row")} in ${pluralize(causes.data.value.length, "group")}${isDated() ? ", all dates" : ""}` : "")))),
    h("div", { class: "filters", role: "search" }, searchFilter("job", "Job ID or key"), selectFilter("type", "Job type", kinds), dateFilter("from", "Failed from"), dateFilter("to", "to"), clearFiltersButton(FILTERS)),
    () => (found.value?.problem ? h("p", { class: "notice", role: "status" }, found.value.problem) : null),
    () => (causes.error.value ? errorNotice(causes.error.value, causes.reload) : null),
    () => (causes.data.value === null && !causes.error.value && !found.value?.problem ? loadingNotice() : null),
    causesTable(),
    () => (causes.data.value?.length === 0 ? emptyList(FILTERS.some((name) => query.value.has(name))) : null),
    rows,
  );

  function causesTable() {
    const body = h("tbody");
    const inOrder = stableOrder((/** @type {any} */ one) => one.code);
    keyedList(body, () => inOrder(causes.data.value ?? []), (one) => one.code, causeRow);
    return h(
      "div",
      { class: "table-box", hidden: () => !causes.data.value?.length },
      h(
        "table",
        { "aria-label": "Causes" },
        h("thead", null, h("tr", null, ["Cause", "Rows", "", "Jobs", "Last seen", ""].map((label, n) => h("th", { scope: "col", class: n === 1 || n === 3 ? "right" : null }, label || h("span", { class: "unseen" }, n === 2 ? "Share" : "Actions"))))),
        body,
      ),
    );
  }

  /** @param {import("../core/signal.js").Signal<any>} one */
  function causeRow(one) {
    const { code } = one.peek();
    const isOpen = () => cause.value === code;
    const largestCount = () => Math.max(1, ...(causes.data.value ?? []).map((/** @type {any} */ other) => other.count));
    const actionButton = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {typeof redriveAll | typeof redriveOne} */ run) => h("button", { type: "button", class: "small", on: { click: singleFlight(() => toastOnError(async () => void (await run(filter(code), { job: job(), done: causes.reload })))) } }, icon(picture), label);
    return h(
      "tr",
      { "aria-current": () => (isOpen() ? "true" : null) },
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", "aria-expanded": () => String(isOpen()), on: { click: () => setQuery({ cause: isOpen() ? null : code }) } }, () => `${isOpen() ? "▾" : "▸"} ${code}`)),
      h("td", { class: "right number" }, () => `${isDated() ? "≤ " : ""}${formatNumber(one.value.count)}`),
      h("td", { class: "bar-cell" }, h("span", { style: { "--part": () => String((one.value.count / largestCount()) * 100) } })),
      h("td", { class: "right number" }, () => formatNumber(one.value.jobs)),
      h("td", { class: "nowrap", title: () => formatDateTime(one.value.newest) }, () => formatAge(one.value.newest, at.value)),
      h("td", { class: "right nowrap" }, actionButton("Retry one …", "play", redriveOne), " ", actionButton("Retry all …", "retry", redriveAll)),
    );
  }
}

/** @param {boolean} isFiltered */
function emptyList(isFiltered) {
  if (isFiltered) return emptyState({ title: "No failed items match", text: "Change the filters, or clear them." });
  return emptyState({
    title: "No failed items",
    text: "Rows that failed permanently are kept here with their input, error and number of attempts until you retry them.",
    commands: [
      ["List failed items with curl", `curl ${toAbsoluteUrl("/v1/dead-letters")} -H "Authorization: Bearer $KEY"`],
      ["Retry from the command line, after fixing the cause", "tidemill redrive JOB"],
    ],
  });
}
