// @ts-check
/** Limiters and messages in quarantine, where the service has such routes; nothing where it has not. */
import { ApiError, api } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, moment, rate } from "../core/format.js";
import { every, load } from "../core/load.js";
import { failure } from "../ui/empty.js";
import { icon } from "../ui/icons.js";

const EVERY_MS = 5_000;

/** Null where there is no such route. @param {string} path @param {AbortSignal} signal */
async function ifThere(path, signal) {
  try {
    return await api.get(path, {}, signal);
  } catch (error) {
    if (error instanceof ApiError && [404, 405].includes(error.status)) return null;
    throw error;
  }
}

/** @param {any} answer @param {string} name */
function listed(answer, name) {
  return Array.isArray(answer) ? answer : answer?.[name] ?? [];
}

export function limitersCard() {
  const found = load((signal) => ifThere("/v1/limiters", signal));
  every(() => found.data.peek() !== null && found.again(), EVERY_MS);
  const heads = ["Limiter", "For", "Rate", "At a time", "Now allowed", "Taken", "Refused", "Blocked until"];
  return () => {
    if (found.error.value) return failure(found.error.value, found.again);
    const limiters = listed(found.data.value, "limiters");
    if (limiters.length === 0) return null;
    return h(
      "section",
      { class: "stack" },
      h("h2", null, "Limiters"),
      h("div", { class: "table-box" }, h("table", { "aria-label": "Limiters" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, limiters.map(limiterRow)))),
      h("p", { class: "hint" }, "Whoever is called too often refuses; the limiter then halves its rate, and lets it grow again. Worth a look when less than half is allowed."),
    );
  };
}

/** @param {any} one */
function limiterRow(one) {
  const share = one.share ?? 1;
  const blocked = one.blocked_until && Date.parse(one.blocked_until) > Date.now();
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, one.name),
    h("td", null, one.key || "everybody"),
    h("td", { class: "number" }, one.rate ? rate(one.rate) : "any"),
    h("td", { class: "number" }, one.concurrency ? count(one.concurrency) : "any"),
    h("td", null, h("span", { class: "status", data: { tone: share < 0.5 ? "warn" : "ok" } }, icon(share < 0.5 ? "alert" : "check"), `${Math.round(share * 100)}%`)),
    h("td", { class: "number" }, count(one.taken)),
    h("td", { class: "number" }, count(one.refused)),
    h("td", null, blocked ? moment(one.blocked_until) : "–"),
  );
}

export function quarantineCard() {
  const found = load((signal) => ifThere("/v1/quarantine?page_size=20", signal));
  return () => {
    const messages = listed(found.data.value, "items");
    if (found.error.value || messages.length === 0) return null;
    return h(
      "section",
      { class: "stack" },
      h("h2", null, "Messages in quarantine"),
      h("div", { class: "table-box" }, h("table", { "aria-label": "Messages in quarantine" }, h("thead", null, h("tr", null, ["When", "How", "Reason", "Message"].map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, messages.map((/** @type {any} */ one) => h("tr", null, h("td", { class: "nowrap" }, moment(one.at)), h("td", null, one.source), h("td", null, one.reason), h("td", { class: "mono small" }, one.message.slice(0, 120))))))),
      h("p", { class: "hint" }, "Nothing is lost with them: what is true stands in the database, and workers look there."),
    );
  };
}
