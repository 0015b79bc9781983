// @ts-check
/** API keys, and the browsers one is signed in with. */
import { api, me, signOut } from "../core/api.js";
import { h } from "../core/dom.js";
import { ago, moment, wholeMoment } from "../core/format.js";
import { load, ticking } from "../core/load.js";
import { wholeAddress } from "../core/place.js";
import { scope } from "../core/sse.js";
import { confirmDialog } from "../ui/dialog.js";
import { empty, failure, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { tellIfFails, toast } from "../ui/toast.js";
import { makeKey } from "./secrets.js";

export function screen() {
  const keys = load((signal) => api.get("/v1/keys", {}, signal));
  const sessions = load((signal) => api.get("/v1/sessions", {}, signal));
  const at = ticking(10_000);
  const shown = () => (keys.data.value ?? []).filter((/** @type {any} */ one) => scope.value === "all" || one.user_id === me.value?.user_id);
  const add = async () => {
    if (await makeKey()) await keys.again();
  };
  const revoke = async (/** @type {any} */ key) => {
    const done = await confirmDialog({
      title: `Revoke ${key.prefix}?`,
      says: [h("p", null, `${key.name ? `“${key.name}”` : "This key"} stops working at once and for ever, for whoever uses it.`)],
      act: "Revoke",
      isDanger: true,
      run: () => api.remove(`/v1/keys/${encodeURIComponent(key.prefix)}`),
    });
    if (!done) return;
    toast(`${key.prefix} is revoked`, "ok");
    await keys.again();
  };

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "API keys"), h("button", { type: "button", class: "main-act", on: { click: add } }, icon("plus"), "New key …")),
    () => (keys.error.value ? failure(keys.error.value, keys.again) : null),
    () => (keys.data.value === null ? (keys.error.value ? null : waiting()) : shown().length ? table() : nothing(add)),
    browsers(),
  );

  function table() {
    const isAll = scope.value === "all";
    const heads = ["Key", "What it is for", ...(isAll ? ["Whose"] : []), "Made", "Last used", "Expires", ""];
    return h(
      "div",
      { class: "table-box" },
      h("table", { "aria-label": "API keys" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Actions"))))), h("tbody", null, shown().map((/** @type {any} */ key) => line(key, isAll)))),
    );
  }

  /** @param {any} key @param {boolean} isAll */
  function line(key, isAll) {
    const isOver = key.expires_at && Date.parse(key.expires_at) < Date.now();
    const state = key.revoked_at ? "revoked" : isOver ? "expired" : "";
    return h(
      "tr",
      null,
      h("th", { scope: "row", class: "mono" }, `${key.prefix}_…`),
      h("td", null, key.name || h("span", { class: "muted" }, "no name")),
      isAll ? h("td", null, key.user_name ?? "–") : null,
      h("td", { class: "nowrap", title: wholeMoment(key.created_at) }, moment(key.created_at)),
      h("td", { class: "nowrap", title: wholeMoment(key.last_used_at) }, () => (key.last_used_at ? ago(key.last_used_at, at.value) : "never")),
      h("td", { class: "nowrap" }, state ? h("span", { class: "status", data: { tone: "wait" } }, icon("ban"), state) : key.expires_at ? moment(key.expires_at) : "never"),
      h("td", { class: "right" }, key.revoked_at ? null : h("button", { type: "button", class: "small danger", "aria-label": `Revoke ${key.prefix}`, on: { click: () => revoke(key) } }, "Revoke …")),
    );
  }

  function browsers() {
    const others = () => (sessions.data.value ?? []).filter((/** @type {any} */ one) => !one.is_this).length;
    const leaveOthers = async () => {
      const done = await confirmDialog({ title: "Sign out everywhere else?", says: [h("p", null, "Every other browser you are signed in with has to sign in again. This one stays.")], act: "Sign the others out", run: () => api.remove("/v1/sessions") });
      if (done) await sessions.again();
    };
    return h(
      "section",
      { class: "stack" },
      h("div", { class: "row between" }, h("h2", null, "Browsers you are signed in with"), h("div", { class: "row" }, () => (others() ? h("button", { type: "button", class: "small", on: { click: leaveOthers } }, "Sign out everywhere else …") : null), h("button", { type: "button", class: "small", on: { click: () => tellIfFails(signOut) } }, "Sign out here"))),
      () => (sessions.error.value ? failure(sessions.error.value, sessions.again) : null),
      () => (sessions.data.value?.length ? h("div", { class: "table-box" }, h("table", { "aria-label": "Sessions" }, h("thead", null, h("tr", null, ["Signed in", "Last seen", ""].map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Which"))))), h("tbody", null, sessions.data.value.map((/** @type {any} */ one) => h("tr", null, h("td", null, wholeMoment(one.created_at)), h("td", null, () => ago(one.seen_at, at.value)), h("td", null, one.is_this ? h("span", { class: "chip" }, "this browser") : "")))))) : null),
    );
  }
}

/** @param {() => void} add */
function nothing(add) {
  return empty({
    title: "No keys yet",
    says: "A key lets a program do what you may do. It is shown once, can expire, and can be revoked at any time.",
    acts: [h("button", { type: "button", class: "main-act", on: { click: add } }, icon("plus"), "Make one")],
    recipes: [
      ["From the command line", "tidemill keys add NAME --name 'nightly import' --expires 90d"],
      ["How it is used", `curl ${wholeAddress("/v1/me")} -H "Authorization: Bearer $KEY"`],
    ],
  });
}
