// @ts-check
/** The API keys screen: keys, and the browser sessions of the user. */
import { api, currentUser, signOut } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatAge, formatDateTime, formatTime } from "../core/format.js";
import { ownerScope } from "../core/live-updates.js";
import { liveClock } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { toAbsoluteUrl } from "../core/url.js";
import { confirmDialog } from "../ui/dialog.js";
import { icon } from "../ui/icons.js";
import { emptyState, errorNotice, loadingNotice } from "../ui/notices.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { createKey } from "./secrets.js";

export function screen() {
  const keys = remoteData((signal) => api.get("/v1/keys", {}, signal));
  const sessions = remoteData((signal) => api.get("/v1/sessions", {}, signal));
  const at = liveClock(10_000);
  const shown = () => (keys.data.value ?? []).filter((/** @type {any} */ one) => ownerScope.value === "all" || one.user_id === currentUser.value?.user_id);
  const add = async () => {
    if (await createKey()) await keys.reload();
  };
  const revoke = async (/** @type {any} */ key) => {
    const done = await confirmDialog({
      title: `Revoke ${key.prefix}?`,
      content: [h("p", null, `${key.name ? `“${key.name}”` : "This key"} stops working immediately for every program that uses it. This cannot be undone.`)],
      actionLabel: "Revoke",
      isDanger: true,
      run: () => api.delete(`/v1/keys/${encodeURIComponent(key.prefix)}`),
    });
    if (!done) return;
    showToast(`Revoked ${key.prefix}`, "ok");
    await keys.reload();
  };

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "API keys"), h("button", { type: "button", class: "main-act", on: { click: add } }, icon("plus"), "New key …")),
    () => (keys.error.value ? errorNotice(keys.error.value, keys.reload) : null),
    () => (keys.data.value === null ? (keys.error.value ? null : loadingNotice()) : shown().length ? table() : emptyList(add)),
    sessionsSection(),
  );

  function table() {
    const isAll = ownerScope.value === "all";
    const heads = ["Key", "Name", ...(isAll ? ["Owner"] : []), "Created", "Last used", "Expires", ""];
    return h(
      "div",
      { class: "table-box" },
      h("table", { class: "cards", "aria-label": "API keys" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Actions"))))), h("tbody", null, shown().map((/** @type {any} */ key) => keyRow(key, isAll)))),
    );
  }

  /** @param {any} key @param {boolean} isAll */
  function keyRow(key, isAll) {
    const isOver = key.expires_at && Date.parse(key.expires_at) < Date.now();
    const state = key.revoked_at ? "revoked" : isOver ? "expired" : "";
    return h(
      "tr",
      null,
      h("th", { scope: "row", class: "mono" }, `${key.prefix}_…`),
      h("td", { data: { label: "Name" } }, key.name || h("span", { class: "muted" }, "no name")),
      isAll ? h("td", { data: { label: "Owner" } }, key.user_name ?? "–") : null,
      h("td", { class: "nowrap", data: { label: "Created" }, title: formatDateTime(key.created_at) }, formatTime(key.created_at)),
      h("td", { class: "nowrap", data: { label: "Last used" }, title: formatDateTime(key.last_used_at) }, () => (key.last_used_at ? formatAge(key.last_used_at, at.value) : "never")),
      h("td", { class: "nowrap", data: { label: "Expires" } }, state ? h("span", { class: "status", data: { tone: "wait" } }, icon("ban"), state) : key.expires_at ? formatTime(key.expires_at) : "never"),
      h("td", { class: "right" }, key.revoked_at ? null : h("button", { type: "button", class: "small danger", "aria-label": `Revoke ${key.prefix}`, on: { click: () => revoke(key) } }, "Revoke …")),
    );
  }

  function sessionsSection() {
    const others = () => (sessions.data.value ?? []).filter((/** @type {any} */ one) => !one.is_this).length;
    const signOutOthers = async () => {
      const done = await confirmDialog({ title: "Sign out everywhere else?", content: [h("p", null, "All your other browser sessions end. You stay signed in here.")], actionLabel: "Sign out everywhere else", run: () => api.delete("/v1/sessions") });
      if (done) await sessions.reload();
    };
    return h(
      "section",
      { class: "stack" },
      h("div", { class: "row between" }, h("h2", null, "Browser sessions"), h("div", { class: "row" }, () => (others() ? h("button", { type: "button", class: "small", on: { click: signOutOthers } }, "Sign out everywhere else …") : null), h("button", { type: "button", class: "small", on: { click: () => toastOnError(signOut) } }, "Sign out here"))),
      () => (sessions.error.value ? errorNotice(sessions.error.value, sessions.reload) : null),
      () => (sessions.data.value?.length ? h("div", { class: "table-box" }, h("table", { class: "cards", "aria-label": "Sessions" }, h("thead", null, h("tr", null, ["Signed in", "Last seen", ""].map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Current"))))), h("tbody", null, sessions.data.value.map((/** @type {any} */ one) => h("tr", null, h("td", { data: { label: "Signed in" } }, formatDateTime(one.created_at)), h("td", { data: { label: "Last seen" } }, () => formatAge(one.seen_at, at.value)), h("td", null, one.is_this ? h("span", { class: "chip" }, "this browser") : "")))))) : null),
    );
  }
}

/** @param {() => void} add */
function emptyList(add) {
  return emptyState({
    title: "No keys yet",
    text: "A program that uses your key has your permissions. A key is shown once, can expire, and can be revoked at any time.",
    actions: [h("button", { type: "button", class: "main-act", on: { click: add } }, icon("plus"), "Create a key")],
    commands: [
      ["From the command line", "tidemill keys add NAME --name 'nightly import' --expires 90d"],
      ["Use a key with curl", `curl ${toAbsoluteUrl("/v1/me")} -H "Authorization: Bearer $KEY"`],
    ],
  });
}
