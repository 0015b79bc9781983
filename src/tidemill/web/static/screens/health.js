// @ts-check
/** The health screen: state of the service, queue depth, throughput and workers. */
import { ApiError, api, currentUser } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatDuration, formatNumber, formatRate, formatTime } from "../core/format.js";
import { ownerScope } from "../core/live-updates.js";
import { everyWhileLive } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { computed, effect, signal } from "../core/signal.js";
import { toAbsoluteUrl } from "../core/url.js";
import { chart } from "../ui/chart.js";
import { commandSnippet } from "../ui/copy-button.js";
import { errorBanners } from "../ui/error-banner.js";
import { icon } from "../ui/icons.js";
import { loadingNotice } from "../ui/notices.js";
import { statusBadge } from "../ui/status.js";
import { limitersCard, quarantineCard } from "./health-cards.js";
import { brokerTile, databaseTile, depthTile, failureTile, healthSummary, throughputTile, waitTile, workerSummary, workersTile } from "./health-tiles.js";

const REFRESH_MS = 5_000;
const MAX_DEPTHS = 180; // samples of the queue depth: 15 minutes

export function screen() {
  const isAdmin = () => currentUser.value?.role === "admin";
  const health = remoteData((signal) => fetchHealth(signal));
  const flow = remoteData((signal) => api.get("/v1/flow", { user_id: ownerScope.value }, signal));
  const workers = remoteData((signal) => (isAdmin() ? api.get("/v1/workers", {}, signal) : Promise.resolve([])));
  const limiters = remoteData((signal) => api.get("/v1/limiters", {}, signal));
  const depths = signal(/** @type {Array<{at: number, n: number}>} */ ([]));
  effect(() => {
    const seen = flow.data.value;
    if (seen === null) return;
    const n = seen.open.pending + seen.open.processing + seen.open.retry_wait;
    depths.value = [...depths.peek().slice(1 - MAX_DEPTHS), { at: flow.loadedAt.peek(), n }];
  });
  effect(() => {
    void ownerScope.value;
    depths.value = [];
  });
  everyWhileLive(() => {
    health.reloadSoon(0);
    flow.reloadSoon(0);
    limiters.reloadSoon(0);
    if (isAdmin()) workers.reloadSoon(0);
  }, REFRESH_MS);

  // Elements that hold a table or chart are kept, with their scroll position; only their content updates.
  const [hasFlow, hasQuarantine] = [computed(() => flow.data.value !== null), computed(() => isAdmin() && Boolean(health.data.value?.body?.quarantined))];
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", null, "Health"), () => (health.data.value || health.error.value ? summary(health.data.value?.body ?? null, allTiles()) : null)), h("span", { class: "muted small" }, () => `as of ${formatTime(flow.loadedAt.value || health.loadedAt.value)}, ${ownerScope.value === "all" ? "rows of all users" : "your rows"}`)),
    errorBanners([health, flow, workers, limiters]),
    () => (health.data.value === null && flow.data.value === null && !flow.error.value ? loadingNotice() : null),
    h("div", { class: "tiles" }, () => allTiles().map(tile)),
    () => (hasFlow.value ? charts() : null),
    workersCard(() => (isAdmin() ? workers.data.value : null)),
    limitersCard(limiters),
    () => (hasQuarantine.value ? quarantineCard() : null),
  );

  function allTiles() {
    return makeTiles(health.data.value?.body, flow.data.value, workers.data.value ?? []);
  }

  function charts() {
    return h(
      "div",
      { class: "columns" },
      h("section", { class: "card" }, h("h2", null, "Settled and failed, last 15 minutes"), chart("Rows settled per second", () => throughputChart(flow.data.value), { isStacked: true })),
      h("section", { class: "card" }, h("h2", null, "Queue depth since this page opened"), chart("Open rows", () => depthChart(depths.value))),
    );
  }
}

/** A 503 response is a valid result: the service is unfit. @param {AbortSignal} signal */
async function fetchHealth(signal) {
  try {
    return { body: await api.get("/health", {}, signal) };
  } catch (error) {
    if (error instanceof ApiError && error.status === 503) return { body: null };
    throw error;
  }
}

/** @param {any} health @param {import("./health-tiles.js").Tile[]} tiles */
function summary(health, tiles) {
  const found = healthSummary(health, tiles);
  return h("span", { class: "row", role: "status" }, statusBadge(found.status), h("span", { class: "muted" }, found.description));
}

/** @param {any} health @param {any} flow @param {any[]} workers @returns {import("./health-tiles.js").Tile[]} */
function makeTiles(health, flow, workers) {
  const all = [flow && depthTile(flow), flow && throughputTile(flow), flow && failureTile(flow), health && waitTile(health), health && workersTile(health, flow), health && databaseTile(health, workers), health && brokerTile(health)];
  return all.filter(Boolean);
}

/** @param {import("./health-tiles.js").Tile} one */
function tile(one) {
  return h("section", { class: "tile", data: { tone: one.tone } }, h("h2", null, one.title), h("p", { class: "value" }, one.value), h("p", { class: "says" }, one.description));
}

/** @param {any} flow @returns {import("../ui/chart.js").Chart} */
function throughputChart(flow) {
  const points = flow?.points ?? [];
  const per = (/** @type {number} */ n) => n / flow.step_s;
  return {
    at: points.map((/** @type {any} */ one) => Date.parse(one.at)),
    series: [
      { name: "succeeded", colour: "--bar-ok", values: points.map((/** @type {any} */ one) => per(one.settled - one.failed)) },
      { name: "failed", colour: "--bar-bad", values: points.map((/** @type {any} */ one) => per(one.failed)) },
    ],
    formatValue: (value) => (value === 0 ? "0" : formatRate(value)),
  };
}

/** @param {Array<{at: number, n: number}>} seen @returns {import("../ui/chart.js").Chart} */
function depthChart(seen) {
  return { at: seen.map((one) => one.at), series: [{ name: "open rows", colour: "--accent", values: seen.map((one) => one.n) }], formatValue: (value) => (Number.isInteger(value) ? formatNumber(value) : "") };
}

/** @param {() => any[] | null} workers */
function workersCard(workers) {
  const noWorkers = h("section", { class: "card stack", hidden: () => workers()?.length !== 0 }, h("h2", null, "Workers"), h("p", { class: "muted" }, "No workers are running. Queued rows will start when a worker connects."), commandSnippet("Start a worker", "tidemill worker app:mill --processes 4"));
  const heads = ["Worker", "Host", "State", "Processing", "Capacity", "Speed", "Processes", "Kinds", "Heartbeat", "Started"];
  const table = h(
    "section",
    { class: "stack", hidden: () => !workers()?.length },
    h("h2", null, "Workers"),
    h("div", { class: "table-box" }, h("table", { "aria-label": "Workers" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col", title: label === "Speed" ? "Estimated from moving averages of concurrency and time per row" : null }, label)))), h("tbody", null, () => (workers() ?? []).map(workerRow)))),
    h("p", { class: "hint" }, `A worker without a heartbeat for 30 seconds is lost; its rows are requeued when their leases expire. Speed is estimated from moving averages. All data: `, h("span", { class: "mono" }, toAbsoluteUrl("/v1/workers"))),
  );
  return [noWorkers, table];
}

/** @param {any} worker */
function workerRow(worker) {
  const line = workerSummary(worker);
  const stateBadge = h("span", { class: "status", data: { tone: line.tone } }, icon(line.icon), line.state);
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "mono" }, worker.id),
    h("td", null, worker.host),
    h("td", null, stateBadge),
    h("td", { class: "number" }, line.isLost || line.inHand === undefined ? "–" : formatNumber(line.inHand)),
    h("td", { class: "number" }, line.isLost ? "–" : formatNumber(line.room)),
    h("td", { class: "number" }, line.isLost || !line.pace ? "–" : `≈ ${formatRate(line.pace)}`),
    h("td", { class: "number" }, formatNumber(line.processes)),
    h("td", null, line.kinds.slice(0, 6).map((/** @type {string} */ kind) => [h("span", { class: "chip" }, kind), " "]), line.kinds.length > 6 ? ` and ${line.kinds.length - 6} more` : null),
    h("td", { class: "nowrap number" }, `${formatDuration(line.heartbeat)} ago`),
    h("td", { class: "nowrap" }, formatTime(worker.started_at)),
  );
}
