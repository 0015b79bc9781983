// @ts-check
/** Health: whether the mill turns, how much it has before it, and who turns it. */
import { ApiError, api, me } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, duration, moment, rate } from "../core/format.js";
import { every, load } from "../core/load.js";
import { wholeAddress } from "../core/place.js";
import { computed, effect, signal } from "../core/signal.js";
import { scope } from "../core/sse.js";
import { chart } from "../ui/chart.js";
import { recipe, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { status } from "../ui/status.js";
import { trouble } from "../ui/trouble.js";
import { limitersCard, quarantineCard } from "./health-more.js";
import { brokerTile, databaseTile, depthTile, failureTile, standing, throughputTile, waitTile, workerLine, workersTile } from "./health-words.js";

const EVERY_MS = 5_000;
const KEPT = 180; // depths that were seen: a quarter of an hour

export function screen() {
  const isAdmin = () => me.value?.role === "admin";
  const health = load((signal) => askHealth(signal));
  const flow = load((signal) => api.get("/v1/flow", { user_id: scope.value }, signal));
  const workers = load((signal) => (isAdmin() ? api.get("/v1/workers", {}, signal) : Promise.resolve([])));
  const limiters = load((signal) => api.get("/v1/limiters", {}, signal));
  const depths = signal(/** @type {Array<{at: number, n: number}>} */ ([]));
  effect(() => {
    const seen = flow.data.value;
    if (seen === null) return;
    const n = seen.open.pending + seen.open.processing + seen.open.retry_wait;
    depths.value = [...depths.peek().slice(1 - KEPT), { at: flow.at.peek(), n }];
  });
  effect(() => {
    scope.value;
    depths.value = [];
  });
  every(() => {
    health.soon(0);
    flow.soon(0);
    limiters.soon(0);
    if (isAdmin()) workers.soon(0);
  }, EVERY_MS);

  // What holds a table or a chart stays, with how far it was scrolled; what it shows follows.
  const [hasFlow, hasQuarantine] = [computed(() => flow.data.value !== null), computed(() => isAdmin() && Boolean(health.data.value?.body?.quarantined))];
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("div", { class: "title" }, h("h1", null, "Health"), () => (health.data.value || health.error.value ? summary(health.data.value?.body ?? null) : null)), h("span", { class: "muted small" }, () => `as of ${moment(flow.at.value || health.at.value)}, ${scope.value === "all" ? "everybody's rows" : "your rows"}`)),
    trouble([health, flow, workers, limiters]),
    () => (health.data.value === null && flow.data.value === null && !flow.error.value ? waiting() : null),
    h("div", { class: "tiles" }, () => tiles(health.data.value?.body, flow.data.value, workers.data.value ?? [])),
    () => (hasFlow.value ? charts() : null),
    workersCard(() => (isAdmin() ? workers.data.value : null)),
    limitersCard(limiters),
    () => (hasQuarantine.value ? quarantineCard() : null),
  );

  function charts() {
    return h(
      "div",
      { class: "columns" },
      h("section", { class: "card" }, h("h2", null, "Settled and failed, the last quarter of an hour"), chart("Rows settled a second", () => throughput(flow.data.value), { isStacked: true })),
      h("section", { class: "card" }, h("h2", null, "Queue depth since this page was opened"), chart("Open rows", () => depthChart(depths.value))),
    );
  }
}

/** Unfit is an answer too. @param {AbortSignal} signal */
async function askHealth(signal) {
  try {
    return { body: await api.get("/health", {}, signal) };
  } catch (error) {
    if (error instanceof ApiError && error.status === 503) return { body: null };
    throw error;
  }
}

/** @param {any} health */
function summary(health) {
  const found = standing(health);
  return h("span", { class: "row", role: "status" }, status(found.status), h("span", { class: "muted" }, found.says));
}

/** @param {any} health @param {any} flow @param {any[]} workers */
function tiles(health, flow, workers) {
  const all = [flow && depthTile(flow), flow && throughputTile(flow), flow && failureTile(flow), health && waitTile(health), health && workersTile(health), health && databaseTile(health, workers), health && brokerTile(health)];
  return all.filter(Boolean).map((one) => h("section", { class: "tile", data: { tone: one.tone } }, h("h2", null, one.title), h("p", { class: "value" }, one.value), h("p", { class: "says" }, one.says)));
}

/** @param {any} flow @returns {import("../ui/chart.js").Chart} */
function throughput(flow) {
  const points = flow?.points ?? [];
  const per = (/** @type {number} */ n) => n / flow.step_s;
  return {
    at: points.map((/** @type {any} */ one) => Date.parse(one.at)),
    series: [
      { name: "settled well", colour: "--bar-ok", values: points.map((/** @type {any} */ one) => per(one.settled - one.failed)) },
      { name: "failed", colour: "--bar-bad", values: points.map((/** @type {any} */ one) => per(one.failed)) },
    ],
    said: (value) => (value === 0 ? "0" : rate(value)),
  };
}

/** @param {Array<{at: number, n: number}>} seen @returns {import("../ui/chart.js").Chart} */
function depthChart(seen) {
  return { at: seen.map((one) => one.at), series: [{ name: "open rows", colour: "--accent", values: seen.map((one) => one.n) }], said: (value) => (Number.isInteger(value) ? count(value) : "") };
}

/** @param {() => any[] | null} workers */
function workersCard(workers) {
  const nobody = h("section", { class: "card stack", hidden: () => workers()?.length !== 0 }, h("h2", null, "Workers"), h("p", { class: "muted" }, "Nobody is at work. Rows are stored and wait until somebody is."), recipe("Start one", "tidemill worker app:mill --processes 4"));
  const heads = ["Worker", "Host", "State", "In hand", "Room", "Pace", "Processes", "Kinds", "Heartbeat", "Started"];
  const table = h(
    "section",
    { class: "stack", hidden: () => !workers()?.length },
    h("h2", null, "Workers"),
    h("div", { class: "table-box" }, h("table", { "aria-label": "Workers" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col", title: label === "Pace" ? "By its moving averages: rows it has in hand at a time, and the time each takes" : null }, label)))), h("tbody", null, () => (workers() ?? []).map(workerRow)))),
    h("p", { class: "hint" }, `A worker that was not heard of for half a minute is lost; its rows go back when their leases run out. Pace is what its moving averages promise while it has work. All of it: `, h("span", { class: "mono" }, wholeAddress("/v1/workers"))),
  );
  return [nobody, table];
}

/** @param {any} worker */
function workerRow(worker) {
  const line = workerLine(worker);
  const look = h("span", { class: "status", data: { tone: line.tone } }, icon(line.icon), line.state);
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "mono" }, worker.id),
    h("td", null, worker.host),
    h("td", null, look),
    h("td", { class: "number" }, line.isLost || line.inHand === undefined ? "–" : count(line.inHand)),
    h("td", { class: "number" }, line.isLost ? "–" : count(line.room)),
    h("td", { class: "number" }, line.isLost || !line.pace ? "–" : `≈ ${rate(line.pace)}`),
    h("td", { class: "number" }, count(line.processes)),
    h("td", null, line.kinds.slice(0, 6).map((/** @type {string} */ kind) => [h("span", { class: "chip" }, kind), " "]), line.kinds.length > 6 ? ` and ${line.kinds.length - 6} more` : null),
    h("td", { class: "nowrap number" }, `${duration(line.heartbeat)} ago`),
    h("td", { class: "nowrap" }, moment(worker.started_at)),
  );
}
