// @ts-check
/** What the figures of a mill mean: each with a tone, and the threshold it goes by, in words. Pure functions. */
import { count, counted, duration, milliseconds, percent, rate } from "../core/format.js";

/** @typedef {{title: string, value: string, says: string, tone: "ok" | "warn" | "bad" | "plain"}} Tile */

const SILENT_S = 30;
const OLD_S = 300;
const MUCH_FAILS = 0.1;
const SLOW_MS = 100;
const LATE_S = 60;

/** @param {any} health as `/health` has it, or null when it says that it is unfit */
export function standing(health) {
  if (health === null) return { status: "unfit", says: "The database does not answer, or its schema is not the one of this version." };
  const says = { ok: "Everything works.", degraded: health.reasons?.join("; ") || (health.queue_age_s > OLD_S ? "Work waits for more than five minutes." : "There is work, and nobody to do it."), unfit: "It cannot work." };
  return { status: health.status, says: /** @type {any} */ (says)[health.status] };
}

/** @param {any} flow @returns {Tile} */
export function depthTile(flow) {
  const { pending, processing, retry_wait } = flow.open;
  return { title: "Queue depth", value: count(pending + processing + retry_wait), says: `${count(pending)} pending, ${count(processing)} in hand, ${count(retry_wait)} waiting for a retry. However many: depth alone is no fault.`, tone: "plain" };
}

/** @param {any} flow @returns {Tile} */
export function throughputTile(flow) {
  const minute = lastOf(flow, 60);
  const open = flow.open.pending + flow.open.processing;
  const isStill = minute.settled === 0 && open > 0;
  return { title: "Throughput", value: rate(minute.settled / 60), says: isStill ? "Nothing was settled in the last minute, and rows are open: look at the workers." : "Rows settled a second, over the last minute. Worth a look when it is nothing while rows are open.", tone: isStill ? "warn" : "ok" };
}

/** @param {any} flow @returns {Tile} */
export function failureTile(flow) {
  const all = lastOf(flow, 900);
  const share = all.settled ? all.failed / all.settled : 0;
  return { title: "Failure rate", value: all.settled ? percent(all.failed, all.settled) : "–", says: `${count(all.failed)} of ${count(all.settled)} rows that were settled in the last quarter of an hour failed. Worth a look from 10 % on.`, tone: share >= MUCH_FAILS ? "bad" : all.settled ? "ok" : "plain" };
}

/** @param {any} health @returns {Tile} */
export function waitTile(health) {
  return { title: "Oldest due work", value: duration(health.queue_age_s), says: "How long the oldest batch that is due has waited. Degraded beyond five minutes.", tone: health.queue_age_s > OLD_S ? "bad" : "ok" };
}

/** @param {any} health @returns {Tile} */
export function workersTile(health) {
  const isBad = health.workers === 0 && health.open_jobs > 0;
  return { title: "Workers", value: count(health.workers), says: `Heard of in the last half minute, for ${counted(health.open_jobs, "open job")}. Degraded when there is work and nobody to do it.`, tone: isBad ? "bad" : health.workers ? "ok" : "plain" };
}

/** @param {any} health @param {any[]} workers @returns {Tile} */
export function databaseTile(health, workers) {
  const latencies = workers.flatMap((one) => (one.info.adaptive ?? []).map((/** @type {any} */ child) => child.database?.latency_ms)).filter((ms) => typeof ms === "number");
  const slowest = latencies.length ? Math.max(...latencies) : null;
  const isWell = health.database === "ok" && health.migrations === "ok";
  return { title: "Database", value: isWell ? (slowest === null ? "ok" : milliseconds(Math.round(slowest * 10) / 10)) : health.database === "ok" ? "wrong schema" : health.database, says: isWell ? (slowest === null ? "It answers, and its schema is ours." : `The slowest mean of a transaction among the workers. Worth a look beyond ${SLOW_MS} ms.`) : `Schema: ${health.migrations}. Unfit until both are ok.`, tone: !isWell ? "bad" : slowest !== null && slowest > SLOW_MS ? "warn" : "ok" };
}

/** Where there is a broker. @param {any} health @returns {Tile | null} */
export function brokerTile(health) {
  if (!health.broker) return null;
  const isLost = health.broker !== "ok";
  const isLate = health.outbox_age_s > LATE_S;
  return { title: "Broker", value: health.broker, says: `${count(health.outbox)} hints wait for it${health.outbox ? `, the oldest for ${duration(health.outbox_age_s)}` : ""}; ${count(health.quarantined)} messages in quarantine. Degraded when it is lost, or a hint waits for more than a minute: work then goes on by polling.`, tone: isLost ? "bad" : isLate ? "warn" : "ok" };
}

/** @param {any} flow @param {number} seconds */
function lastOf(flow, seconds) {
  const points = flow.points.slice(-Math.ceil(seconds / flow.step_s));
  return { settled: sum(points, "settled"), failed: sum(points, "failed") };
}

/** @param {any[]} points @param {string} name @returns {number} */
function sum(points, name) {
  return points.reduce((total, point) => total + point[name], 0);
}

/** A worker as a line of a table. @param {any} worker */
export function workerLine(worker) {
  const children = worker.info.adaptive ?? [];
  const isLost = worker.silent_s > SILENT_S;
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
