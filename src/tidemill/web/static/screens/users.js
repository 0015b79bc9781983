// @ts-check
/** The users screen, for admins: users, roles, keys and sign-in links. */
import { api, currentUser } from "../core/api.js";
import { h, uniqueId } from "../core/dom.js";
import { formatDateTime, formatNumber, formatTime } from "../core/format.js";
import { remoteData } from "../core/remote-data.js";
import { confirmDialog, showDialog, submitHandler } from "../ui/dialog.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { emptyState, errorNotice, loadingNotice } from "../ui/notices.js";
import { singleFlight } from "../ui/single-flight.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { createKey, createSignInLink } from "./secrets.js";

const LOCAL_USER_ID = 0; // the installation itself

export function screen() {
  return h("div", { class: "screen" }, () => (currentUser.value?.role === "admin" ? usersView() : emptyState({ title: "Admins only", text: "Only admins can see users. Your own keys are under API keys." })));
}

function usersView() {
  const users = remoteData((signal) => api.get("/v1/users", {}, signal));

  const add = async () => {
    const made = await createUserDialog();
    if (!made) return;
    showToast(`User ${made.name} added. Create a sign-in link or a key so that they can sign in.`, "ok");
    await users.reload();
  };
  const changeRole = async (/** @type {any} */ user) => {
    const role = user.role === "admin" ? "user" : "admin";
    const done = await confirmDialog({
      title: `Change the role of ${user.name} to ${role}?`,
      content: [h("p", null, role === "admin" ? "Admins can see and change the jobs of all users, and manage users and keys." : "They see only their own jobs."), h("p", { class: "muted" }, "Their browser sessions end, and they have to sign in again.")],
      actionLabel: "Change role",
      run: () => api.patch(`/v1/users/${encodeURIComponent(user.name)}`, { role }),
    });
    if (done) await users.reload();
  };
  const remove = async (/** @type {any} */ user) => {
    const done = await confirmDialog({ title: `Remove ${user.name}?`, content: [h("p", null, "Their keys and sessions stop working immediately. Their jobs stay visible to admins.")], actionLabel: "Remove", isDanger: true, run: () => api.delete(`/v1/users/${encodeURIComponent(user.name)}`) });
    if (done) await users.reload();
  };

  /** @param {any} user */
  function userRow(user) {
    const disabledReason = user.id === LOCAL_USER_ID ? "This user represents the local machine" : null;
    const own = user.id === currentUser.peek()?.user_id ? "You cannot change or remove yourself" : null;
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, user.name, own ? [" ", h("span", { class: "chip" }, "you")] : null),
      h("td", { class: "number", data: { label: "ID" } }, String(user.id)),
      h("td", { class: "status-cell" }, h("span", { class: "status", data: { tone: user.role === "admin" ? "run" : "wait" } }, icon(user.role === "admin" ? "flag" : "user"), user.role)),
      h("td", { class: "number", data: { label: "Active keys" } }, formatNumber(user.keys)),
      h("td", { class: "nowrap", data: { label: "Created" }, title: formatDateTime(user.created_at) }, formatTime(user.created_at)),
      h(
        "td",
        { class: "right nowrap" },
        h("button", { type: "button", class: "small", "aria-label": `Sign-in link for ${user.name}`, on: { click: singleFlight(() => toastOnError(() => createSignInLink(user.name))) } }, "Sign-in link"),
        " ",
        menuButton(`Actions for ${user.name}`, () => [
          { label: "New key …", icon: "key", run: async () => (await createKey({ user: user.name })) && users.reload() },
          { label: user.role === "admin" ? "Change role to user …" : "Change role to admin …", icon: "flag", run: () => changeRole(user), disabledReason: disabledReason ?? own },
          { label: "Remove …", icon: "trash", run: () => remove(user), isDanger: true, disabledReason: disabledReason ?? own },
        ]),
      ),
    );
  }

  return [
    h("div", { class: "head" }, h("h1", null, "Users"), h("button", { type: "button", class: "main-act", on: { click: add } }, icon("plus"), "New user …")),
    () => (users.error.value ? errorNotice(users.error.value, users.reload) : null),
    () => (users.data.value === null ? (users.error.value ? null : loadingNotice()) : h("div", { class: "table-box" }, h("table", { class: "cards", "aria-label": "Users" }, h("thead", null, h("tr", null, ["Name", "ID", "Role", "Active keys", "Created", ""].map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Actions"))))), h("tbody", null, users.data.value.map(userRow))))),
  ];
}

/** @returns {Promise<any>} */
function createUserDialog() {
  return showDialog("New user", (close, isFirm) => {
    const [nameId, roleId] = [uniqueId("name"), uniqueId("role")];
    const name = /** @type {HTMLInputElement} */ (h("input", { id: nameId, type: "text", required: true, maxlength: "100", autofocus: true, autocomplete: "off" }));
    const role = /** @type {HTMLSelectElement} */ (h("select", { id: roleId }, h("option", { value: "user" }, "user: can see and change their own jobs"), h("option", { value: "admin" }, "admin: can see and change everything")));
    const { errorLine, submit: add } = submitHandler(close, isFirm, () => api.post("/v1/users", { name: name.value.trim(), role: role.value }));
    const submit = (/** @type {Event} */ event) => (name.value.trim() === "" ? name.focus() : add(event));
    return [
      h("label", { class: "field", for: nameId }, "Name", name),
      h("label", { class: "field", for: roleId }, "Role", role),
      errorLine,
      h("div", { class: "acts" }, h("button", { type: "button", on: { click: () => close(null) } }, "Go back"), h("button", { type: "submit", class: "main-act", on: { click: submit } }, "Add")),
    ];
  });
}
