// @ts-check
/** Tiles of the health screen: each figure with a tone and the threshold behind it. Pure functions. */
import { formatDuration, formatMilliseconds, formatNumber, formatPercent, formatRate, pluralize } from "../core/format.js";

/** @typedef {{title: string, value: string, description: string, tone: "ok" | "warn" | "bad" | "plain"}} Tile */

const LOST_AFTER_S = 30;
const MAX_QUEUE_AGE_S = 300;
const HIGH_FAILURE_SHARE = 0.1;
const SLOW_TRANSACTION_MS = 100;
const MAX_OUTBOX_AGE_S = 60;

/** @param {any} health the response of `/health`, or null if it is unfit */
export function healthSummary(health) {
  if (health === null) return { status: "unfit", description: "The database does not answer, or its schema is not the one of this version." };
  const descriptions = { ok: "Everything works.", degraded: health.reasons?.join("; ") || (health.queue_age_s > MAX_QUEUE_AGE_S ? "Work waits for more than five minutes." : "There is work, and nobody to do it."), unfit: "It cannot work." };
  return { status: health.status, description: /** @type {any} */ (descriptions)[health.status] };
}

/** @param {any} flow @returns {Tile} */
export function depthTile(flow) {
  const { pending, processing, retry_wait } = flow.open;
  return { title: "Queue depth", value: formatNumber(pending + processing + retry_wait), description: `${formatNumber(pending)} pending, ${formatNumber(processing)} in hand, ${formatNumber(retry_wait)} waiting for a retry. However many: depth alone is no fault.`, tone: "plain" };
}

/** @param {any} flow @returns {Tile} */
export function throughputTile(flow) {
  const minute = sumRecent(flow, 60);
  const open = flow.open.pending + flow.open.processing;
  const isStill = minute.settled === 0 && open > 0;
  return { title: "Throughput", value: formatRate(minute.settled / 60), description: isStill ? "Nothing was settled in the last minute, and rows are open: look at the workers." : "Rows settled a second, over the last minute. Worth a look when it is nothing while rows are open.", tone: isStill ? "warn" : "ok" };
}

/** @param {any} flow @returns {Tile} */
export function failureTile(flow) {
  const all = sumRecent(flow, 900);
  const share = all.settled ? all.failed / all.settled : 0;
  return { title: "Failure rate", value: all.settled ? formatPercent(all.failed, all.settled) : "–", description: `${formatNumber(all.failed)} of ${formatNumber(all.settled)} rows that were settled in the last quarter of an hour failed. Worth a look from 10 % on.`, tone: share >= HIGH_FAILURE_SHARE ? "bad" : all.settled ? "ok" : "plain" };
}

/** @param {any} health @returns {Tile} */
export function waitTile(health) {
  return { title: "Oldest due work", value: formatDuration(health.queue_age_s), description: "How long the oldest batch that is due has waited. Degraded beyond five minutes.", tone: health.queue_age_s > MAX_QUEUE_AGE_S ? "bad" : "ok" };
}

/** @param {any} health @returns {Tile} */
export function workersTile(health) {
  const isBad = health.workers === 0 && health.open_jobs > 0;
  return { title: "Workers", value: formatNumber(health.workers), description: `Heard of in the last half minute, for ${pluralize(health.open_jobs, "open job")}. Degraded when there is work and nobody to do it.`, tone: isBad ? "bad" : health.workers ? "ok" : "plain" };
}

/** @param {any} health @param {any[]} workers @returns {Tile} */
export function databaseTile(health, workers) {
  const latencies = workers.flatMap((one) => (one.info.adaptive ?? []).map((/** @type {any} */ child) => child.database?.latency_ms)).filter((ms) => typeof ms === "number");
  const slowest = latencies.length ? Math.max(...latencies) : null;
  const isWell = health.database === "ok" && health.migrations === "ok";
  return { title: "Database", value: isWell ? (slowest === null ? "ok" : formatMilliseconds(Math.round(slowest * 10) / 10)) : health.database === "ok" ? "wrong schema" : health.database, description: isWell ? (slowest === null ? "It answers, and its schema is ours." : `The slowest mean of a transaction among the workers. Worth a look beyond ${SLOW_TRANSACTION_MS} ms.`) : `Schema: ${health.migrations}. Unfit until both are ok.`, tone: !isWell ? "bad" : slowest !== null && slowest > SLOW_TRANSACTION_MS ? "warn" : "ok" };
}

/** Null if no broker is configured. @param {any} health @returns {Tile | null} */
export function brokerTile(health) {
  if (!health.broker) return null;
  const isLost = health.broker !== "ok";
  const isLate = health.outbox_age_s > MAX_OUTBOX_AGE_S;
  return { title: "Broker", value: health.broker, description: `${formatNumber(health.outbox)} hints wait for it${health.outbox ? `, the oldest for ${formatDuration(health.outbox_age_s)}` : ""}; ${formatNumber(health.quarantined)} messages in quarantine. Degraded when it is lost, or a hint waits for more than a minute: work then goes on by polling.`, tone: isLost ? "bad" : isLate ? "warn" : "ok" };
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
    state: isLost ? "lost" : worker.info.on_demand ? "on demand" : busy ? "at work" : "idle",
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
