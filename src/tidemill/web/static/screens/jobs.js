// @ts-check
/** Jobs, the newest first. */
import { api, now } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { count, dayStart, duration, moment, percent, rate, wholeMoment } from "../core/format.js";
import { load, ticking } from "../core/load.js";
import { Pace, settled } from "../core/pace.js";
import { wholeAddress } from "../core/place.js";
import { href, query, word, words } from "../core/router.js";
import { batch, effect, signal } from "../core/signal.js";
import { onJobs, scope } from "../core/sse.js";
import { steady } from "../core/steady.js";
import { userName } from "../core/users.js";
import { empty, waiting } from "../ui/empty.js";
import { choice, clearFilters, dateField, searchField, statusToggles } from "../ui/filter-bar.js";
import { menuButton } from "../ui/menu.js";
import { moreButton } from "../ui/more.js";
import { underPill } from "../ui/pill.js";
import { progressBar, progressText } from "../ui/progress.js";
import { JOB_STATUSES, isClosed, status } from "../ui/status.js";
import { trouble } from "../ui/trouble.js";
import { jobActions } from "./job-acts.js";
import { listNews } from "./list-news.js";

const FILTERS = ["q", "statuses", "kind", "from", "to"];
const PAGE = 50;
/** Kinds that this tab has seen: nobody tells of all that there are, and of rows that are filtered there may be only one. */
const kinds = signal(/** @type {string[]} */ ([]));

export function screen() {
  const statuses = words("statuses");
  const [q, kind, from, to] = ["q", "kind", "from", "to"].map(word);
  const jobs = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));
  const pace = new Pace();
  const at = ticking(2_000);

  const asked = () => ({ q: q.value, statuses: statuses.value, kind: kind.value, user_id: scope.value, created_from: dayStart(from.value), created_to: dayStart(to.value, 1), page_size: PAGE });
  const first = load((signal) => api.get("/v1/jobs", asked(), signal));
  const totals = load((signal) => api.get("/v1/jobs/counts", { user_id: scope.value }, signal));
  const news = listNews({ first, shown: jobs, next, statuses, asked });
  effect(() => {
    const page = first.data.value;
    if (page === null) return;
    batch(() => {
      jobs.value = page.jobs;
      next.value = page.next_page ?? null;
      news.forget();
    });
  });
  effect(() => {
    const all = new Set([...kinds.peek(), ...jobs.value.map((job) => job.kind)]);
    if (all.size > kinds.peek().length) kinds.value = [...all].sort();
  });

  onJobs((changed) => {
    const told = new Map(changed.map((job) => [job.id, job]));
    changed.forEach((job) => pace.note(job, now()));
    const known = new Set(jobs.peek().map((job) => job.id));
    batch(() => {
      jobs.value = jobs.peek().map((job) => told.get(job.id) ?? job);
      news.hear(changed.filter((job) => !known.has(job.id)));
    });
    totals.soon(3_000);
  }, first);

  /** @param {any} job */
  const changed = (job) => (jobs.value = jobs.peek().map((one) => (one.id === job.id ? { ...one, ...job } : one)));
  const more = moreButton(next, () => first.data.value, (after, signal) => api.get("/v1/jobs", { ...asked(), after }, signal), (page) =>
    batch(() => {
      jobs.value = [...jobs.peek(), ...page.jobs];
      next.value = page.next_page ?? null;
    }),
  );

  /** Statuses that were offered stay where they are, and new ones come last; their numbers are of all jobs, and not said beside a list of some. */
  const offered = new Set();
  const inOrder = steady((/** @type {string} */ value) => value);
  const isSome = () => [q, kind, from, to].some((one) => one.value !== "");
  const byStatus = () => {
    const told = totals.data.value;
    if (told === null && totals.error.value === null) return []; // those that are chosen would come first
    for (const value of JOB_STATUSES) if (told?.counts[value] || statuses.value.includes(value)) offered.add(value);
    return inOrder(JOB_STATUSES.filter((value) => offered.has(value))).map((value) => ({ value, n: isSome() ? null : (told?.counts[value] ?? null), atLeast: told ? !told.is_complete : false }));
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
    h("div", { class: "filters", role: "search" }, searchField("q", "Search by key or id"), choice("kind", "Kind", () => kinds.value.map((value) => ({ value, said: value }))), dateField("from", "From"), dateField("to", "to"), clearFilters(FILTERS)),
    statusToggles("statuses", "Status", byStatus),
    trouble([first]),
    underPill(
      news.says,
      first.again,
      table,
      () => (first.data.value === null && !first.error.value ? waiting() : null),
      () => (first.data.value !== null && jobs.value.length === 0 ? nothing(FILTERS.some((name) => query.value.has(name)), next.value !== null) : null),
    ),
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
