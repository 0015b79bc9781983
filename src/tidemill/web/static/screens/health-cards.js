// @ts-check
/** Cards of the health screen: limiters, and messages that a broker could not deliver. */
import { api, currentUser, serverNow } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { formatNumber, formatRate, formatTime } from "../core/format.js";
import { remoteData } from "../core/remote-data.js";
import { icon } from "../ui/icons.js";
import { singleFlight } from "../ui/single-flight.js";
import { showToast, toastOnError } from "../ui/toast.js";

const LIMITER_COLUMNS = ["Limiter", "Rate", "Concurrency", "Waiting", "Current rate", "Permits", "Throttled", "Blocked until"];

/** @param {import("../core/remote-data.js").RemoteData<any[]>} found */
export function limitersCard(found) {
  const limiters = () => found.data.value ?? [];
  const body = keyedList(h("tbody"), limiters, (/** @type {any} */ one) => one.name, (one) => limiterRow(one, found.reload));
  return h(
    "section",
    { class: "stack", hidden: () => limiters().length === 0 },
    h("h2", null, "Limiters"),
    h("div", { class: "table-box" }, h("table", { "aria-label": "Limiters" }, h("thead", null, h("tr", null, LIMITER_COLUMNS.map((label) => h("th", { scope: "col" }, label)))), body)),
    h("p", { class: "hint" }, "When a service throttles calls, the limiter halves its current rate, then gradually raises it again. A current rate below 50% of the configured rate is highlighted."),
  );
}

/** @param {import("../core/signal.js").Signal<any>} one @param {() => void} again */
function limiterRow(one, again) {
  const limiter = () => one.value;
  const share = () => (limiter().rate ? limiter().current_rate / limiter().rate : 1);
  const isSlow = () => share() < 0.5;
  const isBlocked = () => Boolean(limiter().blocked_until) && Date.parse(limiter().blocked_until) > serverNow();
  const unblock = () =>
    toastOnError(async () => {
      await api.post(`/v1/limiters/${encodeURIComponent(one.peek().name)}/unblock`);
      showToast(`${one.peek().name} unblocked`, "ok");
      again();
    });
  return h(
    "tr",
    null,
    h("th", { scope: "row" }, one.peek().name, h("div", { class: "muted small", hidden: () => !limiter().members }, () => `${formatNumber(limiter().members)} members`)),
    h("td", { class: "number" }, () => (limiter().rate ? formatRate(limiter().rate) : "no limit")),
    h("td", { class: "number" }, () => (limiter().concurrency ? `${formatNumber(limiter().in_use)} of ${formatNumber(limiter().concurrency)}` : "no limit")),
    h("td", { class: "number" }, () => formatNumber(limiter().waiting)),
    h("td", null, h("span", { class: "status", data: { tone: () => (isSlow() ? "warn" : "ok") } }, () => icon(isSlow() ? "alert" : "check"), () => `${Math.round(share() * 100)}%`)),
    h("td", { class: "number" }, () => formatNumber(limiter().taken)),
    h("td", { class: "number" }, () => formatNumber(limiter().refused)),
    h("td", null, () => (isBlocked() ? formatTime(limiter().blocked_until) : "–"), " ", h("button", { type: "button", class: "small", hidden: () => !isBlocked() || currentUser.value?.role !== "admin", on: { click: singleFlight(unblock) } }, "Unblock")),
  );
}

export function quarantineCard() {
  const found = remoteData((signal) => api.get("/v1/quarantine", { page_size: 20 }, signal));
  return () => {
    const messages = found.data.value?.items ?? [];
    if (found.error.value || messages.length === 0) return null;
    return h(
      "section",
      { class: "stack" },
      h("h2", null, "Quarantined messages"),
      h("div", { class: "table-box" }, h("table", { "aria-label": "Quarantined messages" }, h("thead", null, h("tr", null, ["Time", "Source", "Reason", "Message"].map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, messages.map((/** @type {any} */ one) => h("tr", null, h("td", { class: "nowrap" }, formatTime(one.at)), h("td", null, one.source), h("td", null, one.reason), h("td", { class: "mono small" }, one.message.slice(0, 120))))))),
      h("p", { class: "hint" }, "No work is lost: messages are only hints, and workers also poll the database."),
    );
  };
}
