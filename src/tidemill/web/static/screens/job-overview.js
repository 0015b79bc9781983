// @ts-check
/** The overview tab of a job: throughput, failures by error code, batches and adaptive state. */
import { api, isNotFound } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { formatMilliseconds, formatNumber, formatTime, humanize } from "../core/format.js";
import { cellText } from "../core/json.js";
import { everyWhileLive } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { href } from "../core/router.js";
import { computed, effect } from "../core/signal.js";
import { stableOrder } from "../core/stable-order.js";
import { chart, throughputSeries } from "../ui/chart.js";
import { errorBanners } from "../ui/error-banner.js";
import { singleFlight } from "../ui/single-flight.js";
import { isClosed, statusBadge } from "../ui/status.js";
import { reprocessItems } from "./job-actions.js";

/** @param {import("../core/signal.js").Signal<any>} job */
export function jobOverview(job) {
  const path = `/v1/jobs/${job.peek().id}`;
  const points = remoteData((signal) => api.get(`${path}/chart`, {}, signal));
  const batches = remoteData((signal) => api.get(`${path}/batches`, { page_size: 10 }, signal));
  let last = job.peek().updated_at;
  effect(() => {
    if (job.value.updated_at === last) return;
    last = job.value.updated_at;
    points.reloadSoon(4_000);
    batches.reloadSoon(4_000);
  });
  everyWhileLive(() => {
    if (isClosed(job.peek().status) && !points.error.peek() && !batches.error.peek()) return;
    points.reloadSoon(4_000);
    batches.reloadSoon(4_000);
  }, 5_000);
  const hasChart = computed(() => (points.data.value?.length ?? 0) > 1);
  const chartPlaceholder = computed(() => (points.data.value === null ? (points.error.value ? "" : "Loading …") : "No data yet. A sample is recorded every 5 seconds while the job runs."));
  const [pointsError, batchesError] = errorBanners([points, batches], isNotFound);
  return h(
    "div",
    { class: "columns" },
    h("section", { class: "card" }, h("h2", null, "Throughput"), pointsError, () => (hasChart.value ? chart("Items settled per second", () => throughputSeries(points.data.value ?? [], job.value.started_at)) : h("p", { class: "muted" }, chartPlaceholder))),
    failureCauses(job),
    h("section", { class: "card" }, h("h2", null, "Newest batches"), batchesError, batchTable(() => batches.data.value?.batches ?? null, () => batches.error.value !== null)),
    h("details", { class: "card" }, h("summary", null, h("h2", null, "Adaptive state")), adaptiveState(job)),
  );
}

/** Failures by error code, each with a retry button. @param {import("../core/signal.js").Signal<any>} job @param {() => void} [changed] */
export function failureCauses(job, changed) {
  const inOrder = stableOrder((/** @type {[string, number]} */ one) => one[0]);
  const found = () => inOrder(Object.entries(/** @type {Record<string, number>} */ (job.value.errors)).toSorted((a, b) => b[1] - a[1]));
  const largestCount = () => Math.max(1, ...found().map(([, n]) => n));
  /** @param {import("../core/signal.js").Signal<[string, number]>} cause */
  const line = (cause) => {
    const [code] = cause.peek();
    return h(
      "li",
      null,
      h("a", { href: href(`/jobs/${job.peek().key}/results`, { statuses: "failed", causes: [code] }) }, code),
      h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { style: { "--part": () => String((cause.value[1] / largestCount()) * 100) } })),
      h("span", { class: "number" }, () => formatNumber(cause.value[1])),
      h("button", { type: "button", class: "small", "aria-label": `Retry failures with error code ${code}`, on: { click: singleFlight(() => reprocessItems(job.peek(), { statuses: ["failed"], codes: [code] }, changed)) } }, "Retry …"),
    );
  };
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Failures by error code"),
    h("p", { class: "muted", hidden: () => found().length > 0 }, "No failures."),
    keyedList(h("ul", { class: "bars", hidden: () => found().length === 0 }), found, ([code]) => code, line),
  );
}

/** The box is kept, with its focus and scroll position; only its rows update. @param {() => any[] | null} batches @param {() => boolean} hasFailed */
function batchTable(batches, hasFailed) {
  const isNone = () => !batches()?.length;
  return [
    h("p", { class: "muted", hidden: () => !isNone() }, () => (batches() !== null ? "None yet." : hasFailed() ? "" : "Loading …")),
    h(
      "div",
      { class: "table-box", tabindex: "0", role: "group", "aria-label": "Batches", hidden: isNone },
      h(
        "table",
        { class: "small" },
        h("thead", null, h("tr", null, ["Rows", "State", "Processed", "Failed", "Duration", "Since"].map((one, n) => h("th", { scope: "col", class: n > 1 && n < 5 ? "right" : null }, one)))),
        h("tbody", null, () => (batches() ?? []).map(batchRow)),
      ),
    ),
  ];
}

/** @param {any} one */
function batchRow(one) {
  return h(
    "tr",
    null,
    h("td", { class: "nowrap" }, one.shape === "range" ? `${formatNumber(one.lo + 1)}–${formatNumber(one.hi)}` : `${formatNumber(one.size)} requeued`),
    h("td", null, statusBadge(one.state)),
    h("td", { class: "right" }, formatNumber(one.size - one.open)),
    h("td", { class: "right" }, formatNumber(one.tallies.failed)),
    h("td", { class: "right nowrap" }, formatMilliseconds(one.duration_ms)),
    h("td", { class: "nowrap" }, formatTime(one.since)),
  );
}

/** The current limits that the workers use for this kind. @param {import("../core/signal.js").Signal<any>} job */
export function adaptiveState(job) {
  const found = computed(() => /** @type {any[]} */ (job.value.adaptive));
  const names = computed(() => [...new Set(found.value.flatMap((one) => Object.keys(one)))].filter((name) => found.value.some((one) => typeof one[name] !== "object")));
  const isNone = () => found.value.length === 0;
  return h(
    "div",
    null,
    h("p", { class: "muted", hidden: () => !isNone() }, "No running worker handles this kind."),
    h(
      "div",
      { class: "table-box", tabindex: "0", role: "group", "aria-label": "Adaptive state", hidden: isNone },
      h("table", { class: "small" }, h("thead", null, h("tr", null, () => names.value.map((name) => h("th", { scope: "col" }, humanize(name))))), h("tbody", null, () => found.value.map((one) => h("tr", null, names.value.map((name) => h("td", { class: "nowrap" }, figureText(one[name]))))))),
    ),
  );
}

/** @param {any} value */
function figureText(value) {
  return typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(3) : cellText(value);
}
