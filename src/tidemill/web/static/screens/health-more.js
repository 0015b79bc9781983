// @ts-check
/** Limiters, and messages that no broker could deliver. */
import { api, me, now } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { count, moment, rate } from "../core/format.js";
import { load } from "../core/load.js";
import { icon } from "../ui/icons.js";
import { press } from "../ui/press.js";
import { tellIfFails, toast } from "../ui/toast.js";

const HEADS = ["Limiter", "Rate", "At a time", "Waiting", "Now allowed", "Taken", "Refused", "Blocked until"];

/** @param {import("../core/load.js").Loaded<any[]>} found */
export function limitersCard(found) {
  const limiters = () => found.data.value ?? [];
  const body = each(h("tbody"), limiters, (/** @type {any} */ one) => one.name, (one) => limiterRow(one, found.again));
  return h(
    "section",
    { class: "stack", hidden: () => limiters().length === 0 },
    h("h2", null, "Limiters"),
    h("div", { class: "table-box" }, h("table", { "aria-label": "Limiters" }, h("thead", null, h("tr", null, HEADS.map((label) => h("th", { scope: "col" }, label)))), body)),
    h("p", { class: "hint" }, "Whoever is called too often refuses; the limiter then halves its rate, and lets it grow again. Worth a look when less than half is allowed."),
  );
}

/** @param {import("../core/signal.js").Signal<any>} one @param {() => void} again */
function limiterRow(one, again) {
  const its = () => one.value;
  const share = () => (its().rate ? its().current_rate / its().rate : 1);
  const isSlow = () => share() < 0.5;
  const isBlocked = () => Boolean(its().blocked_until) && Date.parse(its().blocked_until) > now();
  const lift = () =>
    tellIfFails(async () => {
      await api.post(`/v1/limiters/${encodeURIComponent(one.peek().name)}/unblock`);
      toast(`${one.peek().name} is open again`, "ok");
      again();
    });
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, one.peek().name, h("div", { class: "muted small", hidden: () => !its().members }, () => `${count(its().members)} of its kind`)),
    h("td", { class: "number" }, () => (its().rate ? rate(its().rate) : "any")),
    h("td", { class: "number" }, () => (its().concurrency ? `${count(its().in_use)} of ${count(its().concurrency)}` : "any")),
    h("td", { class: "number" }, () => count(its().waiting)),
    h("td", null, h("span", { class: "status", data: { tone: () => (isSlow() ? "warn" : "ok") } }, () => icon(isSlow() ? "alert" : "check"), () => `${Math.round(share() * 100)}%`)),
    h("td", { class: "number" }, () => count(its().taken)),
    h("td", { class: "number" }, () => count(its().refused)),
    h("td", null, () => (isBlocked() ? moment(its().blocked_until) : "–"), " ", h("button", { type: "button", class: "small", hidden: () => !isBlocked() || me.value?.role !== "admin", on: { click: press(lift) } }, "Lift")),
  );
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
