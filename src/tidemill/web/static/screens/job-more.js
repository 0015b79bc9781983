// @ts-check
/** The quieter tabs of a job: what failed, how it was asked for, who did what to it. */
import { api } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, wholeMoment, words } from "../core/format.js";
import { cellText, stringify } from "../core/json.js";
import { load } from "../core/load.js";
import { computed, signal } from "../core/signal.js";
import { userName } from "../core/users.js";
import { failure, waiting } from "../ui/empty.js";
import { press } from "../ui/press.js";
import { tellIfFails } from "../ui/toast.js";
import { itemsView } from "./items.js";
import { causes } from "./job-overview.js";

/** @param {import("../core/signal.js").Signal<any>} job @param {() => void} changed */
export function errorsView(job, changed) {
  return h("div", { class: "screen" }, causes(job, changed), itemsView(job, changed, ["failed"]));
}

/** What the workers have settled on for this kind. @param {import("../core/signal.js").Signal<any>} job */
export function adaptive(job) {
  const found = computed(() => /** @type {any[]} */ (job.value.adaptive));
  const names = computed(() => [...new Set(found.value.flatMap((one) => Object.keys(one)))].filter((name) => found.value.some((one) => typeof one[name] !== "object")));
  const isNone = () => found.value.length === 0;
  return h(
    "div",
    null,
    h("p", { class: "muted", hidden: () => !isNone() }, "No worker has this kind now."),
    h(
      "div",
      { class: "table-box", tabindex: "0", role: "group", "aria-label": "Adaptive state", hidden: isNone },
      h("table", { class: "small" }, h("thead", null, h("tr", null, () => names.value.map((name) => h("th", { scope: "col" }, words(name))))), h("tbody", null, () => found.value.map((one) => h("tr", null, names.value.map((name) => h("td", { class: "nowrap" }, figure(one[name]))))))),
    ),
  );
}

/** @param {any} value */
function figure(value) {
  return typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(3) : cellText(value);
}

/** @param {import("../core/signal.js").Signal<any>} job */
export function configView(job) {
  /** @type {Array<[name: string, look: () => string | null | undefined]>} */
  const said = [
    ["Id", () => job.value.id],
    ["Kind", () => job.value.kind],
    ["Priority", () => String(job.value.priority)],
    ["Owner", () => userName(job.value.user_id)],
    ["Submitted", () => wholeMoment(job.value.created_at)],
    ["Closed", () => wholeMoment(job.value.closed_at)],
    ["From address", () => job.value.ip_address],
    ["Request", () => job.value.request_id],
    ["Trace", () => job.value.traceparent],
    ["File", () => job.value.file_id],
    ["Attempts that were repeated", () => count(job.value.retried)],
    ["Columns", () => job.value.columns.join(", ")],
  ];
  return h(
    "div",
    { class: "columns" },
    h("section", { class: "card" }, h("h2", null, "Facts"), h("dl", { class: "facts" }, said.map(([name, look]) => [h("dt", { hidden: () => !look() }, name), h("dd", { hidden: () => !look() }, look)]))),
    h("section", { class: "card stack" }, h("h2", null, "Parameters"), h("pre", { class: "json", tabindex: "0" }, () => stringify(job.value.params, 2)), h("h2", null, "Failure policy"), h("pre", { class: "json", tabindex: "0" }, () => stringify(job.value.policy, 2))),
    h("section", { class: "card" }, h("h2", null, "Adaptive state"), adaptive(job)),
  );
}

/** @param {import("../core/signal.js").Signal<any>} job */
export function activityView(job) {
  const path = `/v1/jobs/${job.peek().id}/activity`;
  const first = load((signal) => api.get(path, { page_size: 50, at: null }, signal));
  const more = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null | undefined} */ (undefined));
  const after = () => (next.value === undefined ? (first.data.value?.next_page ?? null) : next.value);
  const go = async () => {
    const page = await tellIfFails(() => api.get(path, { page_size: 50, after: after() }));
    if (!page) return;
    more.value = [...more.peek(), ...page.activity];
    next.value = page.next_page ?? null;
  };
  return h("section", { class: "card stack" }, h("h2", null, "Who did what"), () => {
    if (first.error.value) return failure(first.error.value, first.again);
    if (first.data.value === null) return waiting();
    const all = [...first.data.value.activity, ...more.value];
    if (all.length === 0) return h("p", { class: "muted" }, "Nobody has done anything to this job since it was submitted.");
    return [
      h("div", { class: "table-box" }, h("table", null, h("thead", null, h("tr", null, ["When", "Who", "What", "Details"].map((one) => h("th", { scope: "col" }, one)))), h("tbody", null, all.map((one) => h("tr", null, h("td", { class: "nowrap" }, wholeMoment(one.at)), h("td", null, () => userName(one.user_id)), h("td", null, words(one.verb)), h("td", { class: "mono small" }, Object.keys(one.details).length ? stringify(one.details) : "")))))),
      after() ? h("button", { type: "button", class: "plain", on: { click: press(go) } }, "Show more") : null,
    ];
  });
}
