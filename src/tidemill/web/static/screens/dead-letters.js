// @ts-check
/** The failed items screen (dead letters in the API): failed items by category, grouped by error. */
import { api } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { findJob } from "../core/find-job.js";
import { formatAge, formatDateTime, formatNumber, pluralize, startOfDay } from "../core/format.js";
import { onJobUpdates, ownerScope } from "../core/live-updates.js";
import { liveClock } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { href, query, queryParam, setQuery } from "../core/router.js";
import { computed, effect, effectScope, onCleanup, signal, untracked } from "../core/signal.js";
import { stableOrder } from "../core/stable-order.js";
import { toAbsoluteUrl } from "../core/url.js";
import { clearFiltersButton, dateFilter, searchFilter, selectFilter } from "../ui/filter-bar.js";
import { icon } from "../ui/icons.js";
import { emptyState, errorNotice, loadingNotice } from "../ui/notices.js";
import { singleFlight } from "../ui/single-flight.js";
import { toastOnError } from "../ui/toast.js";
import { deadLetterGrid } from "./dead-letter-grid.js";
import { openItemDrawer } from "./item-drawer.js";
import { redriveAll, redriveOne, setDismissed } from "./redrive.js";

const FILTERS = ["group", "type", "job", "from", "to"];
const REFRESH_MS = 10_000; // grouping reads up to 10,000 rows

/** @typedef {"handler" | "invalid_row" | "dry_run" | "dismissed"} Category */

/** @type {Array<[Category, string, string]>} */
const CATEGORIES = [
  ["handler", "Handler failures", "Rows whose handler failed. Fix the cause, then retry the rows."],
  ["invalid_row", "Invalid import rows", "Import rows with invalid values. The same input fails again: fix the row and retry it."],
  ["dry_run", "Dry-run rows", "Rows that failed validation in a dry run. There is nothing to retry: fix them in the dry run, then promote it."],
  ["dismissed", "Dismissed", "Failed rows that a user dismissed. Restore them to retry them from this screen."],
];

/** The message of the example's error that belongs to the group: a row of an import can have several errors. @param {any} group @returns {string | undefined} */
function exampleReason({ example, type }) {
  const error = example?.error;
  return (error?.errors?.find((/** @type {any} */ one) => one.code === type) ?? error)?.reason;
}

/** The message of a group without the class of its exception, which the type shows. @param {any} group @returns {string} */
function messageOf({ type, message }) {
  const name = type.slice(type.lastIndexOf(".") + 1);
  return message === name ? "" : message.startsWith(`${name}: `) ? message.slice(name.length + 2) : message;
}

/** The type and the message of a group, in one line. @param {any} group */
function groupTitle(group) {
  return [group.type, messageOf(group)].filter(Boolean).join(": ");
}

export function screen() {
  const [show, groupId, kind, from, to] = ["show", "group", "type", "from", "to"].map(queryParam);
  const found = findJob(queryParam("job"));
  const dates = () => ({ from: startOfDay(from.value) ?? undefined, to: startOfDay(to.value, 1) ?? undefined });
  const groups = remoteData(async (signal) => {
    const job = found.value;
    const wanted = show.value === "dismissed" ? { dismissed: true } : { category: CATEGORIES.some(([name]) => name === show.value) ? show.value : undefined };
    const params = { user_id: ownerScope.value, kind: kind.value, job_id: job?.id, ...dates(), ...wanted };
    return job === null || job.problem ? null : await api.get("/v1/dead-letters/groups", params, signal);
  });
  onJobUpdates(() => groups.reloadSoon(REFRESH_MS)); // also when all failed items of a job were requeued
  const at = liveClock(5_000);
  const isDated = () => from.value !== "" || to.value !== "";
  const category = computed(() => /** @type {Category} */ (groups.data.value?.category ?? (show.value || "handler")));
  const all = () => /** @type {any[]} */ (groups.data.value?.groups ?? []);
  const isComplete = () => groups.data.value?.is_complete ?? true;
  /** @param {string} [group] */
  const filter = (group) => /** @type {import("./redrive.js").DeadFilter} */ (JSON.parse(JSON.stringify({ category: category.value === "dismissed" ? undefined : category.value, group, kind: kind.value || undefined, job_id: found.value?.id ?? undefined, ...dates() })));
  const key = computed(() => (found.value === null ? "" : found.value.problem ? "none" : JSON.stringify([filter(groupId.value), category.value, ownerScope.value])));
  const jobKey = () => found.peek()?.job?.key;
  const opened = computed(() => all().find((one) => one.id === groupId.value));
  const openedTitle = computed(() => (opened.value ? groupTitle(opened.value) : ""));

  const known = remoteData((signal) => api.get("/v1/jobs", { statuses: ["completed_with_errors", "failed", "running"], user_id: ownerScope.value, page_size: 100 }, signal));
  const kinds = () => [...new Set((known.data.value?.jobs ?? []).map((/** @type {any} */ one) => one.kind))].toSorted().map((value) => ({ value, label: value }));

  const rows = h("div", { class: "screen" });
  let end = () => {};
  effect(() => {
    const now = key.value;
    const [id, title] = [groupId.value, openedTitle.value];
    end();
    end = () => {};
    rows.replaceChildren();
    if (!id || !title || now === "" || now === "none") return;
    untracked(() => {
      const matching = () => ({ n: opened.value?.count ?? 0, isExact: isComplete() });
      const [made, over] = effectScope(() => deadLetterGrid({ category: category.value, title, filter: filter(id), matching, job: jobKey(), done: groups.reload }));
      end = over;
      rows.replaceChildren(made);
    });
  });
  onCleanup(() => end());

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", null, "Failed items"), h("span", { class: "muted", role: "status" }, summary))),
    categoryToggles(),
    h("p", { class: "muted" }, () => CATEGORIES.find(([name]) => name === category.value)?.[2]),
    h("div", { class: "filters", role: "search" }, searchFilter("job", "Search by file name or key"), selectFilter("type", "Kind", kinds), dateFilter("from", "Failed from"), dateFilter("to", "to"), clearFiltersButton(FILTERS)),
    () => (found.value?.problem ? h("p", { class: "notice", role: "status" }, found.value.problem) : null),
    () => (groups.error.value ? errorNotice(groups.error.value, groups.reload) : null),
    () => (groups.data.value === null && !groups.error.value && !found.value?.problem ? loadingNotice() : null),
    groupsTable(),
    () => (groups.data.value?.groups.length === 0 ? emptyList(FILTERS.some((name) => query.value.has(name)), category.value) : null),
    rows,
  );

  function summary() {
    const data = groups.data.value;
    if (!data) return "";
    const { counts, is_complete, grouped } = data;
    const isExact = isDated() ? is_complete : counts.is_exact;
    const total = isDated() ? grouped : counts[data.category];
    const mark = isExact ? "" : isDated() || data.category === "dismissed" ? "≥ " : "≤ ";
    return `${mark}${pluralize(total, "row")} in ${pluralize(data.groups.length, "group")}${is_complete ? "" : ` of the newest ${formatNumber(grouped)}`}`;
  }

  function categoryToggles() {
    const count = (/** @type {Category} */ name) => groups.data.value?.counts[name];
    const mark = (/** @type {Category} */ name) => (groups.data.value?.counts.is_exact === false ? (name === "dismissed" ? "≥ " : "≤ ") : "");
    return h(
      "div",
      { class: "toggles", role: "group", "aria-label": "Category" },
      CATEGORIES.map(([name, label]) => h("button", { type: "button", "aria-pressed": () => String(category.value === name), on: { click: () => setQuery({ show: name, group: null }) } }, label, h("span", { class: "number muted", hidden: () => count(name) === undefined }, () => `${mark(name)}${formatNumber(count(name) ?? 0)}`))),
    );
  }

  function groupsTable() {
    const body = h("tbody");
    const inOrder = stableOrder((/** @type {any} */ one) => one.id);
    keyedList(body, () => inOrder(all()), (one) => one.id, groupRow);
    const heads = ["Error", "Rows", "Share", "First seen", "Last seen", "Actions"];
    return h(
      "div",
      { class: "table-box", hidden: () => all().length === 0 },
      h("table", { "aria-label": "Errors", class: "error-groups" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col", class: label === "Rows" ? "right" : null }, label === "Share" || label === "Actions" ? h("span", { class: "unseen" }, label) : label)))), body),
    );
  }

  /** @param {import("../core/signal.js").Signal<any>} one */
  function groupRow(one) {
    const { id } = one.peek();
    const isOpen = () => groupId.value === id;
    const largestCount = () => Math.max(1, ...all().map((other) => other.count));
    const options = () => ({ job: jobKey(), title: groupTitle(one.peek()), done: groups.reload, matching: { n: one.peek().count, isExact: isComplete() } });
    const openExample = () => {
      const row = one.peek().example;
      openItemDrawer(signal({ id: row.job_id, key: row.job_key, user_id: row.user_id }), row.seq, { changed: groups.reload, focusBack: () => {} });
    };
    const button = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {() => any} */ run) => h("button", { type: "button", class: "small", on: { click: singleFlight(() => toastOnError(async () => void (await run()))) } }, icon(picture), label);
    /** @type {Record<Category, () => any[]>} */
    const actions = {
      handler: () => [button("Retry one …", "play", () => redriveOne(filter(id), options())), button("Retry all …", "retry", () => redriveAll(filter(id), options()))],
      invalid_row: () => [button("Fix and retry …", "retry", openExample)],
      dry_run: () => [h("a", { class: "button small", href: href(`/imports/${one.peek().example?.job_key}`) }, "Promote the dry run …")],
      dismissed: () => [button("Restore …", "retry", () => setDismissed("restore", filter(id), options()))],
    };
    return h(
      "tr",
      { "aria-current": () => (isOpen() ? "true" : null) },
      h(
        "th",
        { scope: "row" },
        h("button", { type: "button", class: "link", "aria-expanded": () => String(isOpen()), on: { click: () => setQuery({ group: isOpen() ? null : id }) } }, () => `${isOpen() ? "▾" : "▸"} ${one.value.type}`),
        " ",
        h("span", { class: "chip" }, () => one.value.kind),
        h("div", { class: "error-message" }, () => messageOf(one.value)),
        h("div", { class: "muted small error-message", hidden: () => [undefined, one.value.message].includes(exampleReason(one.value)) }, () => `Example: ${exampleReason(one.value) ?? ""}`),
      ),
      h("td", { class: "right number", data: { label: "Rows" } }, () => `${isComplete() ? "" : "≥ "}${formatNumber(one.value.count)}`),
      h("td", { class: "bar-cell" }, h("span", { style: { "--part": () => String((one.value.count / largestCount()) * 100) } })),
      h("td", { class: "nowrap", data: { label: "First seen" }, title: () => formatDateTime(one.value.first_at) }, () => formatAge(one.value.first_at, at.value)),
      h("td", { class: "nowrap", data: { label: "Last seen" }, title: () => formatDateTime(one.value.last_at) }, () => formatAge(one.value.last_at, at.value)),
      h("td", { class: "right" }, h("span", { class: "row error-actions" }, () => [...actions[category.value](), category.value === "dismissed" ? null : button("Dismiss …", "cross", () => setDismissed("dismiss", filter(id), options()))])),
    );
  }
}

/** @param {boolean} isFiltered @param {Category} category */
function emptyList(isFiltered, category) {
  if (isFiltered) return emptyState({ title: "No failed items match", text: "Change the filters, or clear them." });
  if (category === "dismissed") return emptyState({ title: "No dismissed items", text: "Failed items that you dismiss are listed here. You can restore them." });
  return emptyState({
    title: "No failed items",
    text: "Rows that failed permanently are kept here with their input, error and number of attempts until you retry or dismiss them.",
    commands: [
      ["List failed items with curl", `curl ${toAbsoluteUrl("/v1/dead-letters")} -H "Authorization: Bearer $KEY"`],
      ["Retry from the command line, after fixing the cause", "tidemill retry JOB"],
    ],
  });
}
