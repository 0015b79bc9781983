// @ts-check
/** How a job gets on: throughput, causes of failure, batches, what the workers have settled on. */
import { api, isMissing } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { count, milliseconds, moment } from "../core/format.js";
import { every, load } from "../core/load.js";
import { href } from "../core/router.js";
import { computed, effect } from "../core/signal.js";
import { steady } from "../core/steady.js";
import { chart, throughput } from "../ui/chart.js";
import { press } from "../ui/press.js";
import { isClosed, status } from "../ui/status.js";
import { trouble } from "../ui/trouble.js";
import { adaptive } from "./job-more.js";
import { reprocess } from "./job-acts.js";

/** @param {import("../core/signal.js").Signal<any>} job */
export function overview(job) {
  const path = `/v1/jobs/${job.peek().id}`;
  const points = load((signal) => api.get(`${path}/chart`, {}, signal));
  const batches = load((signal) => api.get(`${path}/batches`, { page_size: 10 }, signal));
  let last = job.peek().updated_at;
  effect(() => {
    if (job.value.updated_at === last) return;
    last = job.value.updated_at;
    points.soon(4_000);
    batches.soon(4_000);
  });
  every(() => {
    if (isClosed(job.peek().status) && !points.error.peek() && !batches.error.peek()) return;
    points.soon(4_000);
    batches.soon(4_000);
  }, 5_000);
  const isDrawn = computed(() => (points.data.value?.length ?? 0) > 1);
  const nothingDrawn = computed(() => (points.data.value === null ? (points.error.value ? "" : "Loading …") : "Nothing to draw yet: a sample is taken every five seconds while the job moves."));
  const [noPoints, noBatches] = trouble([points, batches], isMissing);
  return h(
    "div",
    { class: "columns" },
    h("section", { class: "card" }, h("h2", null, "Throughput"), noPoints, () => (isDrawn.value ? chart("Items settled a second", () => throughput(points.data.value ?? [])) : h("p", { class: "muted" }, nothingDrawn))),
    causes(job),
    h("section", { class: "card" }, h("h2", null, "Newest batches"), noBatches, batchTable(() => batches.data.value?.batches ?? null, () => batches.error.value !== null)),
    h("section", { class: "card" }, h("h2", null, "Adaptive state"), adaptive(job)),
  );
}

/** What failed and why, each with what can be done about it. @param {import("../core/signal.js").Signal<any>} job @param {() => void} [changed] */
export function causes(job, changed) {
  const inOrder = steady((/** @type {[string, number]} */ one) => one[0]);
  const found = () => inOrder(Object.entries(/** @type {Record<string, number>} */ (job.value.errors)).sort((a, b) => b[1] - a[1]));
  const most = () => Math.max(1, ...found().map(([, n]) => n));
  /** @param {import("../core/signal.js").Signal<[string, number]>} cause */
  const line = (cause) => {
    const [code] = cause.peek();
    return h(
      "li",
      null,
      h("a", { href: href(`/jobs/${job.peek().key}/results`, { statuses: "failed", causes: [code] }) }, code),
      h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { style: { "--part": () => String((cause.value[1] / most()) * 100) } })),
      h("span", { class: "number" }, () => count(cause.value[1])),
      h("button", { type: "button", class: "small", "aria-label": `Reprocess failures with cause ${code}`, on: { click: press(() => reprocess(job.peek(), { statuses: ["failed"], codes: [code] }, changed)) } }, "Reprocess …"),
    );
  };
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Failures by cause"),
    h("p", { class: "muted", hidden: () => found().length > 0 }, "Nothing has failed."),
    each(h("ul", { class: "bars", hidden: () => found().length === 0 }), found, ([code]) => code, line),
  );
}

/** The box stays, with the focus and how far it was scrolled; its rows follow. @param {() => any[] | null} batches @param {() => boolean} hasFailed */
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
        h("thead", null, h("tr", null, ["Rows", "State", "Settled", "Failed", "Took", "Since"].map((one, n) => h("th", { scope: "col", class: n > 1 && n < 5 ? "right" : null }, one)))),
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
    h("td", { class: "nowrap" }, one.shape === "range" ? `${count(one.lo + 1)}–${count(one.hi)}` : `${count(one.size)} again`),
    h("td", null, status(one.state)),
    h("td", { class: "right" }, count(one.size - one.open)),
    h("td", { class: "right" }, count(one.tallies.failed)),
    h("td", { class: "right nowrap" }, milliseconds(one.duration_ms)),
    h("td", { class: "nowrap" }, moment(one.since)),
  );
}
