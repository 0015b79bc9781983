// @ts-check
/** Limiters, and messages that no broker could deliver. */
import { api, me } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, moment, rate } from "../core/format.js";
import { every, load } from "../core/load.js";
import { failure } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { tellIfFails, toast } from "../ui/toast.js";

const EVERY_MS = 5_000;
const HEADS = ["Limiter", "Rate", "At a time", "Waiting", "Now allowed", "Taken", "Refused", "Blocked until"];

export function limitersCard() {
  const found = load((signal) => api.get("/v1/limiters", {}, signal));
  every(() => found.soon(0), EVERY_MS);
  return () => {
    if (found.error.value) return failure(found.error.value, found.again);
    const limiters = found.data.value ?? [];
    if (limiters.length === 0) return null;
    return h(
      "section",
      { class: "stack" },
      h("h2", null, "Limiters"),
      h("div", { class: "table-box" }, h("table", { "aria-label": "Limiters" }, h("thead", null, h("tr", null, HEADS.map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, limiters.map((/** @type {any} */ one) => limiterRow(one, found.again))))),
      h("p", { class: "hint" }, "Whoever is called too often refuses; the limiter then halves its rate, and lets it grow again. Worth a look when less than half is allowed."),
    );
  };
}

/** @param {any} one @param {() => void} again */
function limiterRow(one, again) {
  const share = one.rate ? one.current_rate / one.rate : 1;
  const isSlow = share < 0.5;
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, one.name, one.members ? h("div", { class: "muted small" }, `${count(one.members)} of its kind`) : null),
    h("td", { class: "number" }, one.rate ? rate(one.rate) : "any"),
    h("td", { class: "number" }, one.concurrency ? `${count(one.in_use)} of ${count(one.concurrency)}` : "any"),
    h("td", { class: "number" }, count(one.waiting)),
    h("td", null, h("span", { class: "status", data: { tone: isSlow ? "warn" : "ok" } }, icon(isSlow ? "alert" : "check"), `${Math.round(share * 100)}%`)),
    h("td", { class: "number" }, count(one.taken)),
    h("td", { class: "number" }, count(one.refused)),
    h("td", null, one.blocked_until && Date.parse(one.blocked_until) > Date.now() ? block(one, again) : "–"),
  );
}

/** @param {any} one @param {() => void} again */
function block(one, again) {
  const lift = () =>
    tellIfFails(async () => {
      await api.post(`/v1/limiters/${encodeURIComponent(one.name)}/unblock`);
      toast(`${one.name} is open again`, "ok");
      again();
    });
  return [moment(one.blocked_until), " ", me.peek()?.role === "admin" ? h("button", { type: "button", class: "small", on: { click: lift } }, "Lift") : null];
}

export function quarantineCard() {
  const found = load((signal) => api.get("/v1/quarantine", { page_size: 20 }, signal));
  return () => {
    const messages = found.data.value?.items ?? [];
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
