// @ts-check
/** Operations: every bulk action, with who wanted what and how far it is. */
import { ApiError, api, now } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { ago, count, duration, moment, wholeMoment, words } from "../core/format.js";
import { stringify } from "../core/json.js";
import { every, load, ticking } from "../core/load.js";
import { wholeAddress } from "../core/place.js";
import { href } from "../core/router.js";
import { batch, computed, effect, signal, untracked } from "../core/signal.js";
import { scope } from "../core/sse.js";
import { userName } from "../core/users.js";
import { empty, waiting } from "../ui/empty.js";
import { moreButton } from "../ui/more.js";
import { underPill } from "../ui/pill.js";
import { status } from "../ui/status.js";
import { trouble } from "../ui/trouble.js";
import { predicateWords } from "./operation-words.js";

const PAGE = 50;
const QUICK_MS = 1_500;
const SLOW_EVERY = 6; // looks in which nothing ran: then every sixth of them is taken

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} asked */
export function screen({ params }) {
  const chosen = computed(() => params.value.operation ?? "");
  return h("div", { class: "screen" }, h("div", { class: "head" }, h("h1", null, "Operations")), () => (chosen.value ? one(chosen.value) : null), list(chosen));
}

/** @param {import("../core/signal.js").Signal<string>} chosen */
function list(chosen) {
  const operations = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));
  const first = load((signal) => api.get("/v1/operations", { user_id: scope.value, page_size: PAGE }, signal));
  const at = ticking(5_000);
  const fresh = signal(0);
  let wantsNew = false;
  let turn = 0;
  every(() => {
    turn += 1;
    if (operations.peek().some((one) => one.state === "running") || turn % SLOW_EVERY === 0) first.soon(0);
  }, QUICK_MS);
  effect(() => {
    const page = first.data.value;
    if (page === null) return;
    // Those that were loaded further down stay; they are older than any of these.
    const oldest = page.operations.at(-1)?.id ?? "";
    const below = operations.peek().filter((one) => one.id < oldest && next.peek() !== undefined && operations.peek().length > PAGE);
    // What is new waits until it is asked for: nothing moves under the pointer.
    const newest = operations.peek()[0]?.id ?? "";
    const shown = newest && !wantsNew ? page.operations.filter((/** @type {any} */ one) => one.id <= newest) : page.operations;
    wantsNew = false;
    batch(() => {
      fresh.value = page.operations.length - shown.length;
      operations.value = [...shown, ...below];
      if (below.length === 0) next.value = page.next_page ?? null;
    });
  });
  effect(() => {
    scope.value;
    batch(() => ((operations.value = []), (fresh.value = 0), (next.value = null)));
  });
  const more = moreButton(next, () => scope.value, (after, signal) => api.get("/v1/operations", { user_id: scope.peek(), page_size: PAGE, after }, signal), (page) =>
    batch(() => {
      operations.value = [...operations.peek(), ...page.operations];
      next.value = page.next_page ?? null;
    }),
  );
  const body = h("tbody");
  each(body, () => operations.value, (one) => one.id, (one) =>
    h(
      "tr",
      { "aria-current": () => (chosen.value === one.peek().id ? "true" : null) },
      h("th", { scope: "row", class: "nowrap" }, h("a", { href: href(`/operations/${one.peek().id}`), title: wholeMoment(one.peek().created_at) }, moment(one.peek().created_at))),
      h("td", null, () => userName(one.value.user_id)),
      h("td", null, one.peek().verb),
      h("td", null, () => predicateWords(one.value)),
      h("td", { class: "right number" }, () => count(one.value.items)),
      h("td", null, () => state(one.value)),
      h("td", { class: "nowrap" }, () => (at.value, took(one.value))),
    ),
  );
  const heads = ["Started", "Who", "Action", "What was asked for", "Rows", "State", "Took"];
  return h(
    "div",
    { class: "stack" },
    trouble([first]),
    underPill(
      () => (fresh.value ? `${count(fresh.value)} new – show` : ""),
      () => ((wantsNew = true), first.again()),
      h("div", { class: "table-box", hidden: () => operations.value.length === 0 }, h("table", { "aria-label": "Operations" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col", class: label === "Rows" ? "right" : null }, label)))), body)),
      () => (first.data.value === null && !first.error.value ? waiting() : null),
      () => (first.data.value !== null && operations.value.length === 0 ? nothing() : null),
    ),
    more,
  );
}

/** @param {any} operation */
function state(operation) {
  return [status(operation.state), operation.error ? h("div", { class: "fault" }, operation.error) : null];
}

/** @param {any} operation */
function took(operation) {
  const end = operation.state === "running" ? now() : Date.parse(operation.updated_at);
  return `${duration((end - Date.parse(operation.created_at)) / 1000)}${operation.state === "running" ? " so far" : ""}`;
}

/** @param {string} id */
function one(id) {
  const found = load((signal) => api.get(`/v1/operations/${encodeURIComponent(id)}`, {}, signal));
  every(() => {
    if (found.data.peek()?.state === "running") found.soon(0);
  }, QUICK_MS);
  const isThere = computed(() => found.data.value !== null);
  const isNone = (/** @type {Error | null} */ error) => error instanceof ApiError && [404, 422].includes(error.status);
  return h("section", { class: "card stack", "aria-label": "The chosen operation" }, trouble([found], isNone), () => {
    if (isThere.value) return untracked(() => details(/** @type {import("../core/signal.js").Signal<any>} */ (found.data)));
    if (isNone(found.error.value)) return h("p", null, "There is no such operation: the address may be wrong, or it belongs to somebody else.");
    return found.error.value ? null : waiting();
  });
}

/** What can change follows; the rest, and what somebody has opened there, stays. @param {import("../core/signal.js").Signal<any>} found */
function details(found) {
  const operation = found.peek();
  const isRunning = () => found.value.state === "running";
  /** @type {Array<[string, any]>} */
  const facts = [
    ["Asked for", () => predicateWords(found.value)],
    ["By", () => userName(operation.user_id)],
    ["Started", () => `${wholeMoment(operation.created_at)} (${ago(found.value.created_at)})`],
    [operation.verb === "cancel" ? "Cancelled" : "Sent round", () => `${count(found.value.items)} rows`],
    ["Job", operation.job_id ? h("a", { class: "mono", href: href(`/jobs/${operation.job_id}`) }, operation.job_id) : "any"],
    ["Request", operation.request_id ? h("span", { class: "mono" }, operation.request_id) : "–"],
  ];
  return [
    h("div", { class: "row between" }, h("h2", null, `${words(operation.verb)} of ${moment(operation.created_at)}`), h("a", { class: "button", href: href("/operations") }, "Close")),
    h("div", { class: "row" }, () => state(found.value)),
    h("div", { class: "indeterminate", role: "progressbar", "aria-label": "Progress", hidden: () => !isRunning(), "aria-valuetext": () => `${count(found.value.items)} rows so far` }),
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    h("details", null, h("summary", null, "The predicate, as it is stored"), h("pre", { class: "json", tabindex: "0" }, stringify(operation.predicate, 2))),
  ];
}

function nothing() {
  return empty({
    title: "No bulk action yet",
    says: "Whoever sends many rows round again finds it here: who asked for what, how far it is, and how it ended.",
    recipes: [
      ["Send the failures of a job round again", "tidemill reprocess JOB --code timeout"],
      ["All dead letters, with curl", `curl ${wholeAddress("/v1/dead-letters/redrive")} -H "Authorization: Bearer $KEY" --json '{"all_matching": true}'`],
    ],
  });
}
