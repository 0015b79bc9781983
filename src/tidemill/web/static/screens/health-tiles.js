// @ts-check
/** Tiles of the health screen: each figure with a tone and the threshold behind it. Pure functions. */
import { formatDuration, formatMilliseconds, formatNumber, formatPercent, formatRate, pluralize } from "../core/format.js";

/** @typedef {{title: string, value: string, description: string, tone: "ok" | "warn" | "bad" | "plain", problem?: string}} Tile `problem`: why the tone is warn or bad, in one sentence */

const LOST_AFTER_S = 30;
const MAX_QUEUE_AGE_S = 300;
const HIGH_FAILURE_SHARE = 0.1;
const SLOW_TRANSACTION_MS = 100;
const MAX_OUTBOX_AGE_S = 60;

/** The state of the service, never better than its worst tile. @param {any} health the response of `/health`, or null if it is unfit @param {Tile[]} tiles */
export function healthSummary(health, tiles) {
  if (health === null) return { status: "unfit", description: "The database is unreachable, or its schema does not match this version." };
  const worst = tiles.some((one) => one.tone === "bad") ? "bad" : "warn";
  const problems = tiles.filter((one) => one.tone === worst && one.problem).map((one) => one.problem);
  if (health.status === "unfit") return { status: "unfit", description: "The service cannot process work." };
  if (problems.length) return { status: "degraded", description: problems.join(" ") };
  return { status: health.status, description: health.status === "ok" ? "No problems found." : (health.reasons ?? []).map((/** @type {string} */ reason) => `${reason}.`).join(" ") };
}

/** @param {any} flow @returns {Tile} */
export function depthTile(flow) {
  const { pending, processing, retry_wait } = flow.open;
  return { title: "Queue depth", value: formatNumber(pending + processing + retry_wait), description: `${formatNumber(pending)} pending, ${formatNumber(processing)} processing, ${formatNumber(retry_wait)} waiting for a retry. A deep queue alone is not a problem.`, tone: "plain" };
}

/** Open rows of kinds that no worker serves. @param {any} flow @returns {number} */
export function unservedItems(flow) {
  return flow.unserved.reduce((/** @type {number} */ total, /** @type {any} */ one) => total + one.items, 0);
}

/** Names the kinds that no worker serves, with their waiting rows, or jobs if no rows are read yet. @param {any} flow */
export function unservedText(flow) {
  return flow.unserved.map((/** @type {any} */ one) => `No worker serves "${one.kind}": ${one.items ? pluralize(one.items, "item waits", "items wait") : pluralize(one.jobs, "job waits", "jobs wait")}.`).join(" ");
}

/** @param {any} flow @returns {Tile} */
export function throughputTile(flow) {
  const minute = sumRecent(flow, 60);
  const open = flow.open.pending + flow.open.processing;
  const isStill = minute.settled === 0 && open > flow.paused + unservedItems(flow); // other rows have a reason to wait
  return { title: "Throughput", value: formatRate(minute.settled / 60), description: isStill ? "Rows are open, but none was settled in the last minute. Check the workers." : "Average rate at which rows were settled in the last minute. Check the workers if rows are open and none is settled.", tone: isStill ? "warn" : "ok", problem: isStill ? "No row was settled in the last minute." : undefined };
}

/** @param {any} flow @returns {Tile} */
export function failureTile(flow) {
  const all = sumRecent(flow, 900);
  const share = all.settled ? all.failed / all.settled : 0;
  return { title: "Failure rate", value: all.settled ? formatPercent(all.failed, all.settled) : "–", description: `In the last 15 minutes, ${formatNumber(all.failed)} of ${formatNumber(all.settled)} settled rows failed. Threshold: 10%.`, tone: share >= HIGH_FAILURE_SHARE ? "bad" : all.settled ? "ok" : "plain", problem: share >= HIGH_FAILURE_SHARE ? `In the last 15 minutes, ${formatPercent(all.failed, all.settled)} of the settled rows failed.` : undefined };
}

/** @param {any} health @returns {Tile} */
export function waitTile(health) {
  return { title: "Oldest due work", value: formatDuration(health.queue_age_s), description: "Waiting time of the oldest batch that is due. Degraded above 5 minutes.", tone: health.queue_age_s > MAX_QUEUE_AGE_S ? "bad" : "ok", problem: health.queue_age_s > MAX_QUEUE_AGE_S ? `The oldest due work has waited for ${formatDuration(health.queue_age_s)}.` : undefined };
}

/** @param {any} health @param {any} flow null while it is loading @returns {Tile} */
export function workersTile(health, flow) {
  const unserved = flow ? unservedText(flow) : "";
  const isBad = (health.workers === 0 && health.open_jobs > 0) || unserved !== "";
  const problem = unserved || "Jobs are open, but no workers are running.";
  return { title: "Workers", value: formatNumber(health.workers), description: `${unserved ? `${unserved} ` : ""}Active in the last 30 seconds, for ${pluralize(health.open_jobs, "open job")}. Degraded if jobs are open and no workers are running, or if no worker serves a kind.`, tone: isBad ? "bad" : health.workers ? "ok" : "plain", problem: isBad ? problem : undefined };
}

/** @param {any} health @param {any[]} workers @returns {Tile} */
export function databaseTile(health, workers) {
  const latencies = workers.flatMap((one) => (one.info.adaptive ?? []).map((/** @type {any} */ child) => child.database?.latency_ms)).filter((ms) => typeof ms === "number");
  const slowest = latencies.length ? Math.max(...latencies) : null;
  const isWell = health.database === "ok" && health.migrations === "ok";
  const isSlow = slowest !== null && slowest > SLOW_TRANSACTION_MS;
  return { title: "Database", value: isWell ? (slowest === null ? "ok" : formatMilliseconds(Math.round(slowest * 10) / 10)) : health.database === "ok" ? "wrong schema" : health.database, description: isWell ? (slowest === null ? "Connected, and the schema is up to date." : `Average transaction time of the slowest worker process. Threshold: ${SLOW_TRANSACTION_MS} ms.`) : `Schema: ${health.migrations}. The service cannot process work until the database and its schema are ok.`, tone: !isWell ? "bad" : isSlow ? "warn" : "ok", problem: !isWell ? "The database or its schema is not ok." : isSlow ? `Transactions of the slowest worker process take ${formatMilliseconds(Math.round(slowest ?? 0))} on average.` : undefined };
}

/** Null if no broker is configured. @param {any} health @returns {Tile | null} */
export function brokerTile(health) {
  if (!health.broker) return null;
  const isLost = health.broker !== "ok";
  const isLate = health.outbox_age_s > MAX_OUTBOX_AGE_S;
  return { title: "Broker", value: health.broker, description: `${formatNumber(health.outbox)} hints queued${health.outbox ? `, the oldest for ${formatDuration(health.outbox_age_s)}` : ""}; ${formatNumber(health.quarantined)} messages quarantined. Degraded if the broker is unreachable or a hint waits for more than 1 minute; workers then poll the database.`, tone: isLost ? "bad" : isLate ? "warn" : "ok", problem: isLost ? "The broker is not reachable; workers poll the database." : isLate ? `The oldest hint for the broker has waited for ${formatDuration(health.outbox_age_s)}.` : undefined };
}

/** @param {any} flow @param {number} seconds */
function sumRecent(flow, seconds) {
  const points = flow.points.slice(-Math.ceil(seconds / flow.step_s));
  return { settled: sum(points, "settled"), failed: sum(points, "failed") };
}

/** @param {any[]} points @param {string} name @returns {number} */
function sum(points, name) {
  return points.reduce((total, point) => total + point[name], 0);
}

/** The data of a worker for a table row. @param {any} worker */
export function workerSummary(worker) {
  const children = worker.info.adaptive ?? [];
  const isLost = worker.silent_s > LOST_AFTER_S;
  const kinds = children.flatMap((/** @type {any} */ child) => Object.values(child.kinds ?? {}));
  const busy = worker.in_hand > 0;
  const pace = kinds.reduce((/** @type {number} */ total, /** @type {any} */ kind) => total + (kind.item_ms > 0 ? (kind.concurrency * 1000) / kind.item_ms : 0), 0);
  return {
    state: isLost ? "lost" : worker.info.on_demand ? "on demand" : busy ? "working" : "idle",
    tone: isLost ? "bad" : busy ? "run" : "wait",
    icon: isLost ? "cross" : busy ? "run" : "clock",
    inHand: worker.in_hand,
    room: kinds.reduce((/** @type {number} */ total, /** @type {any} */ kind) => total + (kind.concurrency ?? 0), 0),
    pace: busy ? pace : 0,
    processes: worker.info.processes ?? children.length,
    kinds: worker.info.kinds ?? [],
    heartbeat: worker.silent_s,
    isLost,
  };
}
