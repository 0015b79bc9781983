// @ts-check
/** The operations screen: every bulk action with its author, filter and progress. */
import { ApiError, api, serverNow } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { formatAge, formatDateTime, formatDuration, formatNumber, formatTime } from "../core/format.js";
import { stringify } from "../core/json.js";
import { ownerScope } from "../core/live-updates.js";
import { everyWhileLive, liveClock } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { href } from "../core/router.js";
import { batch, computed, effect, signal, untracked } from "../core/signal.js";
import { toAbsoluteUrl } from "../core/url.js";
import { userName } from "../core/user-names.js";
import { errorBanners } from "../ui/error-banner.js";
import { loadMoreButton } from "../ui/load-more.js";
import { emptyState, loadingNotice } from "../ui/notices.js";
import { singleFlight } from "../ui/single-flight.js";
import { statusBadge } from "../ui/status.js";
import { toastOnError } from "../ui/toast.js";
import { withUpdatePill } from "../ui/update-pill.js";
import { describePredicate, verbLabel } from "./operation-text.js";

const PAGE_SIZE = 50;
const POLL_MS = 1_500;
const IDLE_POLL_FACTOR = 6; // while nothing is running, poll at every sixth tick only

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} options */
export function screen({ params }) {
  const chosen = computed(() => params.value.operation ?? "");
  return h("div", { class: "screen" }, h("div", { class: "head" }, h("h1", null, "Operations")), () => (chosen.value ? operationCard(chosen.value) : null), operationList(chosen));
}

/** @param {import("../core/signal.js").Signal<string>} chosen */
function operationList(chosen) {
  const operations = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));
  const firstPage = remoteData((signal) => api.get("/v1/operations", { user_id: ownerScope.value, page_size: PAGE_SIZE }, signal));
  const at = liveClock(5_000);
  const newCount = signal(0);
  let wantsNew = false;
  let tick = 0;
  everyWhileLive(() => {
    tick += 1;
    if (operations.peek().some((one) => one.state === "running") || tick % IDLE_POLL_FACTOR === 0) firstPage.reloadSoon(0);
  }, POLL_MS);
  effect(() => {
    const page = firstPage.data.value;
    if (page === null) return;
    // Keep the entries of further pages; they are older than these.
    const oldest = page.operations.at(-1)?.id ?? "";
    const below = operations.peek().filter((one) => one.id < oldest && next.peek() !== undefined && operations.peek().length > PAGE_SIZE);
    // New entries wait behind the update pill, so that nothing moves under the pointer.
    const newest = operations.peek()[0]?.id ?? "";
    const shown = newest && !wantsNew ? page.operations.filter((/** @type {any} */ one) => one.id <= newest) : page.operations;
    wantsNew = false;
    batch(() => {
      newCount.value = page.operations.length - shown.length;
      operations.value = [...shown, ...below];
      if (below.length === 0) next.value = page.next_page ?? null;
    });
  });
  effect(() => {
    void ownerScope.value;
    batch(() => ((operations.value = []), (newCount.value = 0), (next.value = null)));
  });
  const more = loadMoreButton(next, () => ownerScope.value, (after, signal) => api.get("/v1/operations", { user_id: ownerScope.peek(), page_size: PAGE_SIZE, after }, signal), (page) =>
    batch(() => {
      operations.value = [...operations.peek(), ...page.operations];
      next.value = page.next_page ?? null;
    }),
  );
  const body = h("tbody");
  keyedList(body, () => operations.value, (one) => one.id, (one) =>
    h(
      "tr",
      { "aria-current": () => (chosen.value === one.peek().id ? "true" : null) },
      h("th", { scope: "row", class: "nowrap" }, h("a", { href: href(`/operations/${one.peek().id}`), title: formatDateTime(one.peek().created_at) }, formatTime(one.peek().created_at))),
      h("td", { data: { label: "User" } }, () => userName(one.value.user_id)),
      h("td", { data: { label: "Action" } }, verbLabel(one.peek().verb, one.peek().predicate)),
      h("td", { data: { label: "Selection" } }, () => describePredicate(one.value)),
      h("td", { class: "right number", data: { label: "Rows" } }, () => formatNumber(one.value.items)),
      h("td", { class: "status-cell" }, () => stateCell(one.value)),
      h("td", { class: "nowrap", data: { label: "Duration" } }, () => (at.value, durationText(one.value))),
    ),
  );
  const heads = ["Started", "User", "Action", "Selection", "Rows", "State", "Duration"];
  return h(
    "div",
    { class: "stack" },
    errorBanners([firstPage]),
    withUpdatePill(
      () => (newCount.value ? `${formatNumber(newCount.value)} new – show` : ""),
      () => ((wantsNew = true), firstPage.reload()),
      h("div", { class: "table-box", hidden: () => operations.value.length === 0 }, h("table", { class: "cards", "aria-label": "Operations" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col", class: label === "Rows" ? "right" : null }, label)))), body)),
      () => (firstPage.data.value === null && !firstPage.error.value ? loadingNotice() : null),
      () => (firstPage.data.value !== null && operations.value.length === 0 ? emptyList() : null),
    ),
    more,
  );
}

/** @param {any} operation */
function stateCell(operation) {
  return [statusBadge(operation.state), operation.error ? h("div", { class: "fault" }, operation.error) : null];
}

/** @param {any} operation */
function durationText(operation) {
  const end = operation.state === "running" ? serverNow() : Date.parse(operation.updated_at);
  return `${formatDuration((end - Date.parse(operation.created_at)) / 1000)}${operation.state === "running" ? " so far" : ""}`;
}

/** @param {string} id */
function operationCard(id) {
  const found = remoteData((signal) => api.get(`/v1/operations/${encodeURIComponent(id)}`, {}, signal));
  everyWhileLive(() => {
    if (found.data.peek()?.state === "running") found.reloadSoon(0);
  }, POLL_MS);
  const isThere = computed(() => found.data.value !== null);
  const isNone = (/** @type {Error | null} */ error) => error instanceof ApiError && [404, 422].includes(error.status);
  return h("section", { class: "card stack", "aria-label": "Selected operation" }, errorBanners([found], isNone), () => {
    if (isThere.value) return untracked(() => operationDetails(/** @type {import("../core/signal.js").Signal<any>} */ (found.data)));
    if (isNone(found.error.value)) return h("p", null, "Operation not found. The address may be wrong, or the operation belongs to another user.");
    return found.error.value ? null : loadingNotice();
  });
}

/** Only the parts that can change are reactive; the rest, such as an opened section, is kept. @param {import("../core/signal.js").Signal<any>} found */
function operationDetails(found) {
  const operation = found.peek();
  const isRunning = () => found.value.state === "running";
  const cancel = singleFlight(() => toastOnError(async () => (found.value = await api.post(`/v1/operations/${operation.id}/cancel`))));
  /** @type {Array<[string, any]>} */
  const facts = [
    ["Selection", () => describePredicate(found.value)],
    ["User", () => userName(operation.user_id)],
    ["Started", () => `${formatDateTime(operation.created_at)} (${formatAge(found.value.created_at)})`],
    [operation.verb === "cancel" ? "Cancelled" : "Requeued", () => `${formatNumber(found.value.items)} rows`],
    ["Job", operation.job_id ? h("a", { class: "mono", href: href(`/jobs/${operation.job_id}`) }, operation.job_id) : "any"],
    ["Request", operation.request_id ? h("span", { class: "mono" }, operation.request_id) : "–"],
  ];
  return [
    h("div", { class: "row between" }, h("h2", null, `Operation: ${verbLabel(operation.verb, operation.predicate)}`), h("div", { class: "row" }, h("button", { type: "button", class: "danger", hidden: () => !isRunning(), on: { click: cancel } }, "Cancel the rest"), h("a", { class: "button", href: href("/operations") }, "Close"))),
    h("div", { class: "row" }, () => stateCell(found.value)),
    h("div", { class: "indeterminate", role: "progressbar", "aria-label": "Progress", hidden: () => !isRunning(), "aria-valuetext": () => `${formatNumber(found.value.items)} rows so far` }),
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    h("details", null, h("summary", null, "Selection as JSON"), h("pre", { class: "json", tabindex: "0" }, stringify(operation.predicate, 2))),
  ];
}

function emptyList() {
  return emptyState({
    title: "No bulk operations yet",
    text: "Operations that retry, run again or cancel many rows are listed here with their user, selection, progress and result.",
    commands: [
      ["Retry the failed items of a job", "tidemill retry JOB --code timeout"],
      ["Retry all failed items with curl", `curl ${toAbsoluteUrl("/v1/dead-letters/redrive")} -H "Authorization: Bearer $KEY" --json '{"all_matching": true}'`],
    ],
  });
}
