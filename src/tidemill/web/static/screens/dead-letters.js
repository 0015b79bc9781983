// @ts-check
/** Dead letters: rows that failed for good, by cause; one of them is tried first, then all. */
import { api } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { findJob } from "../core/find-job.js";
import { ago, count, counted, dayStart, wholeMoment } from "../core/format.js";
import { load, ticking } from "../core/load.js";
import { wholeAddress } from "../core/place.js";
import { query, setQuery, word } from "../core/router.js";
import { computed, effect, onCleanup, scope as inScope, untracked } from "../core/signal.js";
import { onJobs, scope } from "../core/sse.js";
import { steady } from "../core/steady.js";
import { empty, failure, waiting } from "../ui/empty.js";
import { choice, clearFilters, dateField, searchField } from "../ui/filter-bar.js";
import { icon } from "../ui/icons.js";
import { press } from "../ui/press.js";
import { tellIfFails } from "../ui/toast.js";
import { deadRows } from "./dead-rows.js";
import { redriveAll, tryOne } from "./redrive.js";

const FILTERS = ["cause", "type", "job", "from", "to"];

export function screen() {
  const [cause, kind, from, to] = ["cause", "type", "from", "to"].map(word);
  const found = findJob(word("job"));
  const causes = load(async (signal) => {
    const job = found.value;
    const asked = { user_id: scope.value, kind: kind.value, job_id: job?.id };
    return job === null || job.problem ? null : await api.get("/v1/dead-letters/causes", asked, signal);
  });
  onJobs(() => causes.soon(3_000)); // also of jobs in which nothing has failed any more
  const at = ticking(5_000);
  const isDated = () => from.value !== "" || to.value !== "";
  /** @param {string} [code] */
  const filter = (code) => /** @type {import("./redrive.js").DeadFilter} */ (JSON.parse(JSON.stringify({ error_codes: code ? [code] : undefined, kind: kind.value || undefined, job_id: found.value?.id ?? undefined, from: dayStart(from.value) ?? undefined, to: dayStart(to.value, 1) ?? undefined })));
  const key = computed(() => (found.value === null ? "" : found.value.problem ? "none" : JSON.stringify([filter(cause.value), scope.value])));
  const job = () => found.peek()?.job?.key;

  /** @param {string} code */
  const matching = (code) => ({ n: causes.data.value?.find((/** @type {any} */ one) => one.code === code)?.count ?? 0, isExact: !isDated() });
  const total = () => (causes.data.value ?? []).reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.count, 0);
  const known = load((signal) => api.get("/v1/jobs", { statuses: ["completed_with_errors", "failed", "running"], user_id: scope.value, page_size: 100 }, signal));
  const kinds = () => [...new Set((known.data.value?.jobs ?? []).map((/** @type {any} */ one) => one.kind))].sort().map((value) => ({ value, said: value }));

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
      const [made, over] = inScope(() => deadRows(code, filter(code), () => matching(code), { job: job(), done: causes.again }));
      end = over;
      rows.replaceChildren(made);
    });
  });
  onCleanup(() => end());

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", null, "Dead letters"), h("span", { class: "muted", role: "status" }, () => (causes.data.value ? `${counted(total(), "row")} in ${counted(causes.data.value.length, "group")}${isDated() ? ", of all dates" : ""}` : "")))),
    h("div", { class: "filters", role: "search" }, searchField("job", "Job id or key"), choice("type", "Job type", kinds), dateField("from", "Failed from"), dateField("to", "to"), clearFilters(FILTERS)),
    () => (found.value?.problem ? h("p", { class: "notice", role: "status" }, found.value.problem) : null),
    () => (causes.error.value ? failure(causes.error.value, causes.again) : null),
    () => (causes.data.value === null && !causes.error.value && !found.value?.problem ? waiting() : null),
    groups(),
    () => (causes.data.value?.length === 0 ? nothing(FILTERS.some((name) => query.value.has(name))) : null),
    rows,
  );

  function groups() {
    const body = h("tbody");
    const inOrder = steady((/** @type {any} */ one) => one.code);
    each(body, () => inOrder(causes.data.value ?? []), (one) => one.code, group);
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
  function group(one) {
    const { code } = one.peek();
    const isOpen = () => cause.value === code;
    const most = () => Math.max(1, ...(causes.data.value ?? []).map((/** @type {any} */ other) => other.count));
    const act = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {typeof redriveAll | typeof tryOne} */ run) => h("button", { type: "button", class: "small", on: { click: press(() => tellIfFails(async () => void (await run(filter(code), { job: job(), done: causes.again })))) } }, icon(picture), label);
    return h(
      "tr",
      { "aria-current": () => (isOpen() ? "true" : null) },
      h("th", { scope: "row" }, h("button", { type: "button", class: "link", "aria-expanded": () => String(isOpen()), on: { click: () => setQuery({ cause: isOpen() ? null : code }) } }, () => `${isOpen() ? "▾" : "▸"} ${code}`)),
      h("td", { class: "right number" }, () => `${isDated() ? "≤ " : ""}${count(one.value.count)}`),
      h("td", { class: "bar-cell" }, h("span", { style: { "--part": () => String((one.value.count / most()) * 100) } })),
      h("td", { class: "right number" }, () => count(one.value.jobs)),
      h("td", { class: "nowrap", title: () => wholeMoment(one.value.newest) }, () => ago(one.value.newest, at.value)),
      h("td", { class: "right nowrap" }, act("Try one …", "play", tryOne), " ", act("Redrive all …", "retry", redriveAll)),
    );
  }
}

/** @param {boolean} isFiltered */
function nothing(isFiltered) {
  if (isFiltered) return empty({ title: "No dead letter matches", says: "Change the filters, or clear them." });
  return empty({
    title: "No dead letters",
    says: "Rows that failed for good are kept here, with their input, why, and how often they were tried, until somebody sends them round again.",
    recipes: [
      ["List them with curl", `curl ${wholeAddress("/v1/dead-letters")} -H "Authorization: Bearer $KEY"`],
      ["After mending the cause, from the command line", "tidemill redrive JOB"],
    ],
  });
}
