// @ts-check
/** Jobs, the newest first. */
import { api, me, now } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { count, duration, moment, percent, rate, wholeMoment } from "../core/format.js";
import { load, ticking } from "../core/load.js";
import { Pace, settled } from "../core/pace.js";
import { wholeAddress } from "../core/place.js";
import { href, query, word, words } from "../core/router.js";
import { batch, computed, effect, signal } from "../core/signal.js";
import { onJobs, scope } from "../core/sse.js";
import { userName } from "../core/users.js";
import { empty, failure, waiting } from "../ui/empty.js";
import { choice, clearFilters, dateField, searchField, statusToggles } from "../ui/filter-bar.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { moreButton } from "../ui/more.js";
import { progressBar, progressText } from "../ui/progress.js";
import { JOB_STATUSES, isClosed, status } from "../ui/status.js";
import { jobActions } from "./job-acts.js";

const FILTERS = ["q", "statuses", "kind", "from", "to"];
const PAGE = 50;

export function screen() {
  const statuses = words("statuses");
  const [q, kind, from, to] = ["q", "kind", "from", "to"].map(word);
  const jobs = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));
  const fresh = signal(/** @type {Map<string, any>} */ (new Map()));
  const pace = new Pace();
  const at = ticking(2_000);

  const asked = () => ({ q: q.value, statuses: statuses.value, kind: kind.value, user_id: scope.value, created_from: day(from.value), created_to: day(to.value, 1), page_size: PAGE });
  const first = load((signal) => api.get("/v1/jobs", asked(), signal));
  const totals = load((signal) => api.get("/v1/jobs/counts", { user_id: scope.value }, signal));
  effect(() => {
    const page = first.data.value;
    if (page === null) return;
    batch(() => {
      jobs.value = page.jobs;
      next.value = page.next_page ?? null;
      fresh.value = new Map();
    });
  });

  onJobs((changed) => {
    const known = new Map(jobs.peek().map((job) => [job.id, job]));
    const unknown = new Map(fresh.peek());
    for (const job of changed) {
      pace.note(job, now());
      if (known.has(job.id)) known.set(job.id, job);
      else if (isNew(job)) unknown.set(job.id, job);
    }
    batch(() => {
      jobs.value = jobs.peek().map((job) => known.get(job.id));
      if (unknown.size !== fresh.peek().size) fresh.value = unknown;
    });
    totals.soon(3_000);
  }, first);

  /** Would be on this page, at its top. @param {any} job */
  function isNew(job) {
    const newest = jobs.peek()[0];
    if (first.data.peek() === null || (newest && Date.parse(job.created_at) < Date.parse(newest.created_at))) return false;
    if (scope.peek() !== "all" && job.user_id !== me.peek()?.user_id) return false;
    return (!kind.peek() || job.kind === kind.peek()) && !q.peek() && !to.peek() && (statuses.peek().length === 0 || statuses.peek().includes(job.status));
  }

  /** @param {any} job */
  const changed = (job) => (jobs.value = jobs.peek().map((one) => (one.id === job.id ? { ...one, ...job } : one)));
  const more = moreButton(next, () => first.data.value, (after, signal) => api.get("/v1/jobs", { ...asked(), after }, signal), (page) =>
    batch(() => {
      jobs.value = [...jobs.peek(), ...page.jobs];
      next.value = page.next_page ?? null;
    }),
  );

  const kinds = computed(() => [...new Set(jobs.value.map((job) => job.kind))].sort().map((value) => ({ value, said: value })));
  /** Statuses that were offered stay where they are; their numbers are of all jobs, and not said beside a list of some. */
  const offered = new Set();
  const isSome = () => [q, kind, from, to].some((one) => one.value !== "");
  const byStatus = () => {
    const told = totals.data.value;
    for (const value of JOB_STATUSES) if (told?.counts[value] || statuses.value.includes(value)) offered.add(value);
    return JOB_STATUSES.filter((value) => offered.has(value)).map((value) => ({ value, n: isSome() ? null : (told?.counts[value] ?? null), atLeast: told ? !told.is_complete : false }));
  };
  const isAll = () => scope.value === "all";

  const body = h("tbody");
  each(body, () => jobs.value, (job) => job.id, (job) => line(job));
  /** @param {import("../core/signal.js").Signal<any>} job */
  function line(job) {
    const open = () => !isClosed(job.value.status);
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, h("a", { href: href(`/jobs/${job.peek().key}`), class: "mono" }, job.peek().key)),
      h("td", null, h("span", { class: "chip" }, job.peek().kind)),
      h("td", { hidden: () => !isAll() }, () => userName(job.value.user_id)),
      h("td", null, () => status(job.value.status)),
      h("td", { class: "wide-cell" }, progressBar(() => job.value.counts, { thin: true }), h("small", { class: "muted number" }, () => summary(job.value))),
      h("td", { class: "right nowrap" }, () => (at.value, open() ? speed(job.value) : "–")),
      h("td", { class: "right nowrap" }, () => (at.value, open() ? left(job.value) : "–")),
      h("td", { class: "nowrap", title: () => wholeMoment(job.value.created_at) }, () => moment(job.value.created_at)),
      h("td", { class: "right" }, menuButton(`Actions for ${job.peek().key}`, () => jobActions(job.peek(), changed, () => first.again()))),
    );
  }
  /** @param {any} job */
  const speed = (job) => {
    const found = pace.perSecond(job, now());
    return found === null ? "…" : rate(found);
  };
  /** @param {any} job */
  const left = (job) => {
    const found = pace.left(job, now());
    return found === null ? "–" : duration(found);
  };

  const table = h(
    "div",
    { class: "table-box", hidden: () => jobs.value.length === 0 },
    h("table", { "aria-label": "Jobs" }, h("thead", null, h("tr", null, th("Job"), th("Kind"), h("th", { scope: "col", hidden: () => !isAll() }, "Owner"), th("Status"), th("Progress"), th("Rate", true), th("Time left", true), th("Submitted"), h("th", { scope: "col" }, h("span", { class: "unseen" }, "Actions")))), body),
  );
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Jobs")),
    h("div", { class: "filters", role: "search" }, searchField("q", "Search by key or id"), choice("kind", "Kind", () => kinds.value), dateField("from", "From"), dateField("to", "to"), clearFilters(FILTERS)),
    statusToggles("statuses", "Status", byStatus),
    h("button", { type: "button", class: "pill", hidden: () => fresh.value.size === 0, on: { click: () => first.again() } }, icon("up"), () => `${count(fresh.value.size)} new – show`),
    () => (first.error.value ? failure(first.error.value, first.again) : null),
    table,
    () => (first.data.value === null && !first.error.value ? waiting() : null),
    () => (first.data.value !== null && jobs.value.length === 0 ? nothing(FILTERS.some((name) => query.value.has(name)), next.value !== null) : null),
    more,
  );
}

/** @param {string} label @param {boolean} [right] */
function th(label, right = false) {
  return h("th", { scope: "col", class: right ? "right" : null }, label);
}

/** @param {any} job */
function summary(job) {
  const { counts } = job;
  if (counts.total === 0) return job.ingest_complete ? "no rows" : "being read";
  if (isClosed(job.status)) return progressText(counts).split(", ").slice(1).join(" · ");
  return `${percent(settled(counts), counts.total)} of ${count(counts.total)}${counts.failed ? ` · ${count(counts.failed)} failed` : ""}`;
}

/** @param {string} date @param {number} [plus] days */
function day(date, plus = 0) {
  if (!date) return null;
  const at = new Date(`${date}T00:00:00`);
  at.setDate(at.getDate() + plus);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}

/** @param {boolean} isFiltered @param {boolean} hasMore */
function nothing(isFiltered, hasMore) {
  if (isFiltered) return empty({ title: hasMore ? "None so far" : "No job matches", says: hasMore ? "There is more to look through." : "Change the filters, or clear them." });
  const url = wholeAddress("/v1/jobs");
  return empty({
    title: "No jobs yet",
    says: "Submit rows over HTTP or from the command line. Every row is stored first, then processed; this page shows how it goes.",
    recipes: [
      ["With curl", `curl ${url} -H "Authorization: Bearer $KEY" --json '{"kind": "greet", "inputs": [{"name": "ada"}]}'`],
      ["From a file", "tidemill submit greet people.csv"],
    ],
  });
}
