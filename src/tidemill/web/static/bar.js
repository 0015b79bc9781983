// @ts-check
/** The bar above every screen: whose work is shown, whether it is live, how it looks, who is signed in. */
import { me, now, signOut } from "./core/api.js";
import { h } from "./core/dom.js";
import { duration, moment } from "./core/format.js";
import { areKeysOn, knownKeys } from "./core/keys.js";
import { ticking } from "./core/load.js";
import { preference, remember } from "./core/prefs.js";
import { match, path } from "./core/router.js";
import { computed, effect } from "./core/signal.js";
import { freshAt, isPaused, liveState, retryAt, scope } from "./core/sse.js";
import { SCREENS } from "./screens/index.js";
import { showDialog } from "./ui/dialog.js";
import { icon } from "./ui/icons.js";
import { menuButton } from "./ui/menu.js";
import { tellIfFails } from "./ui/toast.js";

const THEMES = ["system", "light", "dark"];
const THEME_ICONS = { system: "half", light: "sun", dark: "moon" };

/** @type {Record<string, [word: string, icon: string, tone: string]>} */
const LIVE = {
  connecting: ["Connecting", "clock", "wait"],
  live: ["Live", "run", "ok"],
  lost: ["Lost", "alert", "bad"],
  paused: ["Paused", "pause", "warn"],
  hidden: ["Resting", "pause", "wait"],
  off: ["Signed out", "ban", "wait"],
};

/** Mine or everybody's; for admins. */
export function scopeChoice() {
  const kept = preference("scope", "me");
  effect(() => {
    scope.value = me.value?.role === "admin" ? kept.value : "me";
  });
  const choose = (/** @type {Event} */ event) => remember("scope", /** @type {HTMLSelectElement} */ (event.target).value);
  return h("select", { "aria-label": "Whose work", hidden: () => me.value?.role !== "admin", on: { change: choose } }, h("option", { value: "me", selected: () => kept.value === "me" }, "Mine"), h("option", { value: "all", selected: () => kept.value === "all" }, "Everybody's"));
}

/** Whether news come in; pressing it stops or starts every request that nobody asked for. */
export function liveButton() {
  const look = () => LIVE[liveState.value];
  return h(
    "button",
    { type: "button", class: "plain", "aria-pressed": () => String(!isPaused.value), title: () => (isPaused.value ? "Nothing is asked for until you press this" : "Pause: no requests at all"), on: { click: () => isPaused.update((is) => !is) } },
    h("span", { class: "unseen" }, "Live updates: "),
    () => h("span", { class: "status", data: { tone: look()[2] } }, icon(look()[1]), look()[0]),
  );
}

/** When the screen that stands there was opened: nothing on it is older. */
function openedAt() {
  const screen = computed(() => {
    const found = match(SCREENS, path.value);
    return found === null ? path.value : `${found.route.path} ${found.params[found.route.key] ?? ""}`;
  });
  return computed(() => (screen.value, now()));
}

/** How old what is shown is, when it is not live. */
export function liveNotice() {
  const at = ticking();
  const opened = openedAt();
  const shown = () => moment(Math.max(freshAt.value, opened.value));
  const says = () => {
    if (liveState.value === "paused") return `Paused, showing ${shown()}. Nothing is asked for meanwhile.`;
    return liveState.value === "lost" ? `Live updates lost, showing ${shown()}. ` : "";
  };
  const next = () => {
    if (liveState.value !== "lost") return "";
    const left = Math.max(0, (retryAt.value - at.value) / 1000);
    return left > 0 ? `Trying again in ${duration(left)}` : "Trying again";
  };
  // Seconds that count down are for eyes: read out, they would drown everything else.
  return h("div", { class: "notice", role: "status", hidden: () => says() === "" }, says, h("span", { "aria-hidden": "true" }, next));
}

export function themeMenu() {
  const theme = preference("theme", "system");
  effect(() => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
  });
  return menuButton(
    "Theme",
    () => THEMES.map((name) => ({ label: `${name[0].toUpperCase()}${name.slice(1)}${theme.peek() === name ? " ✓" : ""}`, icon: /** @type {any} */ (THEME_ICONS)[name], run: () => remember("theme", name) })),
    { content: [h("span", { class: "unseen" }, "Theme"), () => icon(/** @type {any} */ (THEME_ICONS)[theme.value] ?? "half")], class: "plain icon-only" },
  );
}

export function accountMenu() {
  return menuButton(
    "Account",
    () => [
      { label: "Keyboard", icon: "help", run: showKeys },
      { label: "Sign out", icon: "close", run: () => tellIfFails(signOut) },
    ],
    { content: [icon("user"), h("span", { class: "wordy" }, () => me.value?.name ?? ""), h("span", { class: "unseen" }, "account")], class: "plain" },
  );
}

const IN_GRIDS = [
  ["↑ ↓ ← →", "Move; with Shift, select on the way"],
  ["Space", "Select a row"],
  ["Enter", "Open a row"],
  ["Ctrl A", "Select all"],
  ["Home, End, Page Up, Page Down", "Move further"],
  ["Escape", "Close, or select nothing"],
];

export function showKeys() {
  const lines = (/** @type {string[][]} */ all) => all.map(([keys, does]) => [h("dt", null, keys.split(" ").map((one) => [h("kbd", null, one), " "])), h("dd", null, does)]);
  return showDialog("Keyboard", (close) => [
    h("dl", { class: "facts" }, lines(knownKeys().map(({ keys, does }) => [keys, does]))),
    h("h3", null, "In grids"),
    h("dl", { class: "facts" }, lines(IN_GRIDS)),
    h("label", { class: "choice" }, h("input", { type: "checkbox", checked: areKeysOn.peek(), on: { change: (/** @type {Event} */ event) => remember("keys", /** @type {HTMLInputElement} */ (event.target).checked) } }), "Single keys work (those in grids always do)"),
    h("div", { class: "acts" }, h("button", { type: "button", class: "main-act", on: { click: () => close(null) } }, "Close")),
  ]);
}
