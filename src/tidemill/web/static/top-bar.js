// @ts-check
/** The top bar: owner scope, live updates, theme and account. */
import { currentUser, serverNow, signOut } from "./core/api.js";
import { h } from "./core/dom.js";
import { formatDuration, formatTime } from "./core/format.js";
import { areUpdatesPaused, lastUpdateAt, liveState, ownerScope, reconnectAt } from "./core/live-updates.js";
import { liveClock } from "./core/polling.js";
import { preference, setPreference } from "./core/preferences.js";
import { matchRoute, path } from "./core/router.js";
import { areShortcutsEnabled, listShortcuts } from "./core/shortcuts.js";
import { computed, effect } from "./core/signal.js";
import { SCREENS } from "./screens/index.js";
import { showDialog } from "./ui/dialog.js";
import { icon } from "./ui/icons.js";
import { menuButton } from "./ui/menu.js";
import { toastOnError } from "./ui/toast.js";

const THEMES = ["system", "light", "dark"];
const THEME_ICONS = { system: "half", light: "sun", dark: "moon" };

/** @type {Record<string, [word: string, icon: string, tone: string]>} */
const LIVE_STATES = {
  connecting: ["Connecting", "clock", "wait"],
  live: ["Live", "run", "ok"],
  lost: ["Offline", "alert", "bad"],
  paused: ["Paused", "pause", "warn"],
  hidden: ["In background", "pause", "wait"],
  off: ["Signed out", "ban", "wait"],
};

/** Own jobs or all jobs; for admins. */
export function ownerScopeSelect() {
  const kept = preference("scope", "me");
  effect(() => {
    ownerScope.value = currentUser.value?.role === "admin" ? kept.value : "me";
  });
  const choose = (/** @type {Event} */ event) => setPreference("scope", /** @type {HTMLSelectElement} */ (event.target).value);
  return h("select", { "aria-label": "Owner", hidden: () => currentUser.value?.role !== "admin", on: { change: choose } }, h("option", { value: "me", selected: () => kept.value === "me" }, "Mine"), h("option", { value: "all", selected: () => kept.value === "all" }, "All users"));
}

/** Shows the state of live updates, and pauses or resumes them. */
export function liveButton() {
  const liveLabel = () => LIVE_STATES[liveState.value];
  return h(
    "button",
    { type: "button", class: "plain", "aria-pressed": () => String(!areUpdatesPaused.value), title: () => (areUpdatesPaused.value ? "Resume live updates" : "Pause live updates"), on: { click: () => areUpdatesPaused.update((is) => !is) } },
    h("span", { class: "unseen" }, "Live updates: "),
    () => h("span", { class: "status", data: { tone: liveLabel()[2] } }, icon(liveLabel()[1]), liveLabel()[0]),
  );
}

/** When the current screen was opened. Its data is not older. */
function openedAt() {
  const screen = computed(() => {
    const found = matchRoute(SCREENS, path.value);
    return found === null ? path.value : `${found.route.path} ${found.params[found.route.key] ?? ""}`;
  });
  return computed(() => (screen.value, serverNow()));
}

/** Shows how old the data is while live updates are off. */
export function liveNotice() {
  const at = liveClock();
  const opened = openedAt();
  const shown = () => formatTime(Math.max(lastUpdateAt.value, opened.value));
  const noticeText = () => {
    if (liveState.value === "paused") return `Paused. Showing data from ${shown()}.`;
    return liveState.value === "lost" ? `Offline. Showing data from ${shown()}. ` : "";
  };
  const next = () => {
    if (liveState.value !== "lost") return "";
    const left = Math.max(0, (reconnectAt.value - at.value) / 1000);
    return left > 0 ? `Reconnecting in ${formatDuration(left)}` : "Reconnecting";
  };
  // The countdown is hidden from screen readers, which would announce every second.
  return h("div", { class: "notice", role: "status", hidden: () => noticeText() === "" }, noticeText, h("span", { "aria-hidden": "true" }, next));
}

export function themeMenu() {
  const theme = preference("theme", "system");
  effect(() => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
  });
  return menuButton(
    "Theme",
    () => THEMES.map((name) => ({ label: `${name[0].toUpperCase()}${name.slice(1)}${theme.peek() === name ? " ✓" : ""}`, icon: /** @type {any} */ (THEME_ICONS)[name], run: () => setPreference("theme", name) })),
    { content: [h("span", { class: "unseen" }, "Theme"), () => icon(/** @type {any} */ (THEME_ICONS)[theme.value] ?? "half")], class: "plain icon-only" },
  );
}

export function accountMenu() {
  return menuButton(
    "Account",
    () => [
      { label: "Keyboard shortcuts", icon: "help", run: showShortcuts },
      { label: "Sign out", icon: "sign-out", run: () => toastOnError(signOut) },
    ],
    { content: [icon("user"), h("span", { class: "wordy" }, () => currentUser.value?.name ?? ""), h("span", { class: "unseen" }, "account")], class: "plain" },
  );
}

const GRID_SHORTCUTS = [
  ["↑ ↓ ← →", "Move; hold Shift to select"],
  ["Space", "Select a row"],
  ["Enter", "Open a row"],
  ["Ctrl A", "Select all"],
  ["Home, End, Page Up, Page Down", "Jump to the start, to the end, or by one page"],
  ["Escape", "Close, or clear the selection"],
];

export function showShortcuts() {
  const lines = (/** @type {string[][]} */ all) => all.map(([keys, description]) => [h("dt", null, keys.split(" ").map((one) => [h("kbd", null, one), " "])), h("dd", null, description)]);
  return showDialog("Keyboard shortcuts", (close) => [
    h("dl", { class: "facts" }, lines(listShortcuts().map(({ keys, description }) => [keys, description]))),
    h("h3", null, "In grids"),
    h("dl", { class: "facts" }, lines(GRID_SHORTCUTS)),
    h("label", { class: "choice" }, h("input", { type: "checkbox", checked: areShortcutsEnabled.peek(), on: { change: (/** @type {Event} */ event) => setPreference("keys", /** @type {HTMLInputElement} */ (event.target).checked) } }), "Enable single-key shortcuts (grid keys are always on)"),
    h("div", { class: "acts" }, h("button", { type: "button", class: "main-act", on: { click: () => close(null) } }, "Close")),
  ]);
}
