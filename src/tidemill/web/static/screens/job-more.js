// @ts-check
/** The quieter tabs of a job: what failed, how it was asked for, who did what to it. */
import { api, isMissing } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { count, wholeMoment, words } from "../core/format.js";
import { cellText, stringify } from "../core/json.js";
import { every, load } from "../core/load.js";
import { batch, computed, effect, signal } from "../core/signal.js";
import { userName } from "../core/users.js";
import { waiting } from "../ui/empty.js";
import { moreButton } from "../ui/more.js";
import { trouble } from "../ui/trouble.js";
import { itemsView } from "./items.js";
import { causes } from "./job-overview.js";

const PAGE = 50;
const EVERY_MS = 10_000;

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
  const first = load((signal) => api.get(path, { page_size: PAGE }, signal));
  const all = signal(/** @type {any[]} */ ([]));
  const next = signal(/** @type {string | null} */ (null));
  effect(() => {
    const page = first.data.value;
    if (page === null) return;
    const newest = all.peek()[0]?.id ?? -1;
    const fresh = page.activity.filter((/** @type {any} */ one) => one.id > newest);
    batch(() => {
      // Those that were loaded further down stay, unless so many are new that there would be a gap.
      const isWhole = fresh.length === page.activity.length;
      all.value = isWhole ? fresh : [...fresh, ...all.peek()];
      if (isWhole) next.value = page.next_page ?? null;
    });
  });
  const shown = job.peek();
  effect(() => {
    if (job.value !== shown) first.soon(1_000); // whatever is done to a job makes it another one
  });
  every(() => first.soon(0), EVERY_MS); // but for what leaves it as it is: an export, for one
  const more = moreButton(next, () => path, (after, signal) => api.get(path, { page_size: PAGE, after }, signal), (page) =>
    batch(() => {
      all.value = [...all.peek(), ...page.activity];
      next.value = page.next_page ?? null;
    }),
  );
  const body = each(h("tbody"), () => all.value, (one) => one.id, (entry) => activityRow(entry.peek()));
  return h(
    "section",
    { class: "card stack" },
    h("h2", null, "Who did what"),
    trouble([first], isMissing),
    () => (first.data.value === null && !first.error.value ? waiting() : null),
    h("p", { class: "muted", hidden: () => first.data.value === null || all.value.length > 0 }, "Nobody has done anything to this job since it was submitted."),
    h("div", { class: "table-box", hidden: () => all.value.length === 0 }, h("table", { "aria-label": "Activity" }, h("thead", null, h("tr", null, ["When", "Who", "What", "Details"].map((one) => h("th", { scope: "col" }, one)))), body)),
    more,
  );
}

/** @param {any} one */
function activityRow(one) {
  return h("tr", null, h("td", { class: "nowrap" }, wholeMoment(one.at)), h("td", null, () => userName(one.user_id)), h("td", null, words(one.verb)), h("td", { class: "mono small" }, Object.keys(one.details).length ? stringify(one.details) : ""));
}
