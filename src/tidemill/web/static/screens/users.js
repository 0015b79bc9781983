// @ts-check
/** Users, for admins: who may use the service, with which role, and how they get in. */
import { api, me } from "../core/api.js";
import { h, uid } from "../core/dom.js";
import { count, moment, wholeMoment } from "../core/format.js";
import { load } from "../core/load.js";
import { answering, confirmDialog, showDialog } from "../ui/dialog.js";
import { empty, failure, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { press } from "../ui/press.js";
import { tellIfFails, toast } from "../ui/toast.js";
import { makeKey, makeLink } from "./secrets.js";

const LOCAL = 0; // this installation itself

export function screen() {
  return h("div", { class: "screen" }, () => (me.value?.role === "admin" ? forAdmins() : empty({ title: "For admins", says: "Only an admin sees who may use the service. Your own keys are under API keys." })));
}

function forAdmins() {
  const users = load((signal) => api.get("/v1/users", {}, signal));

  const add = async () => {
    const made = await askForUser();
    if (!made) return;
    toast(`${made.name} may use the service. A link or a key lets them in.`, "ok");
    await users.again();
  };
  const changeRole = async (/** @type {any} */ user) => {
    const role = user.role === "admin" ? "user" : "admin";
    const done = await confirmDialog({
      title: `Make ${user.name} ${role === "admin" ? "an admin" : "a plain user"}?`,
      says: [h("p", null, role === "admin" ? "Admins see and change everything of everybody, and make users and keys." : "They see their own work only."), h("p", { class: "muted" }, "Browsers they are signed in with have to sign in again.")],
      act: role === "admin" ? "Make an admin" : "Make a user",
      run: () => api.patch(`/v1/users/${encodeURIComponent(user.name)}`, { role }),
    });
    if (done) await users.again();
  };
  const remove = async (/** @type {any} */ user) => {
    const done = await confirmDialog({ title: `Remove ${user.name}?`, says: [h("p", null, "Their keys and sessions go at once. Their jobs stay, for admins.")], act: "Remove", isDanger: true, run: () => api.remove(`/v1/users/${encodeURIComponent(user.name)}`) });
    if (done) await users.again();
  };

  /** @param {any} user */
  function line(user) {
    const why = user.id === LOCAL ? "this installation itself" : null;
    const own = user.id === me.peek()?.user_id ? "this is you" : null;
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, user.name, own ? [" ", h("span", { class: "chip" }, "you")] : null),
      h("td", { class: "number" }, String(user.id)),
      h("td", null, h("span", { class: "status", data: { tone: user.role === "admin" ? "run" : "wait" } }, icon(user.role === "admin" ? "flag" : "user"), user.role)),
      h("td", { class: "number" }, count(user.keys)),
      h("td", { class: "nowrap", title: wholeMoment(user.created_at) }, moment(user.created_at)),
      h(
        "td",
        { class: "right nowrap" },
        h("button", { type: "button", class: "small", "aria-label": `One-time link for ${user.name}`, on: { click: press(() => tellIfFails(() => makeLink(user.name))) } }, "One-time link"),
        " ",
        menuButton(`Actions for ${user.name}`, () => [
          { label: "New key …", icon: "key", run: async () => (await makeKey({ user: user.name })) && users.again() },
          { label: user.role === "admin" ? "Make a plain user …" : "Make an admin …", icon: "flag", run: () => changeRole(user), why: why ?? own },
          { label: "Remove …", icon: "close", run: () => remove(user), isDanger: true, why: why ?? own },
        ]),
      ),
    );
  }

  return [
    h("div", { class: "head" }, h("h1", null, "Users"), h("button", { type: "button", class: "main-act", on: { click: add } }, icon("plus"), "New user …")),
    () => (users.error.value ? failure(users.error.value, users.again) : null),
    () => (users.data.value === null ? (users.error.value ? null : waiting()) : h("div", { class: "table-box" }, h("table", { "aria-label": "Users" }, h("thead", null, h("tr", null, ["Name", "Id", "Role", "Good keys", "Since", ""].map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Actions"))))), h("tbody", null, users.data.value.map(line))))),
  ];
}

/** @returns {Promise<any>} */
function askForUser() {
  return showDialog("A new user", (close, isFirm) => {
    const [nameId, roleId] = [uid("name"), uid("role")];
    const name = /** @type {HTMLInputElement} */ (h("input", { id: nameId, type: "text", required: true, maxlength: "100", autofocus: true, autocomplete: "off" }));
    const role = /** @type {HTMLSelectElement} */ (h("select", { id: roleId }, h("option", { value: "user" }, "user: sees their own work"), h("option", { value: "admin" }, "admin: sees and changes everything")));
    const { fault, go: add } = answering(close, isFirm, () => api.post("/v1/users", { name: name.value.trim(), role: role.value }));
    const go = (/** @type {Event} */ event) => (name.value.trim() === "" ? name.focus() : add(event));
    return [
      h("label", { class: "field", for: nameId }, "Name", name),
      h("label", { class: "field", for: roleId }, "Role", role),
      fault,
      h("div", { class: "acts" }, h("button", { type: "button", on: { click: () => close(null) } }, "Not now"), h("button", { type: "submit", class: "main-act", on: { click: go } }, "Add")),
    ];
  });
}
