// @ts-check
/** Creates API keys and sign-in links, and shows them once. */
import { api } from "../core/api.js";
import { h, uniqueId } from "../core/dom.js";
import { formatDuration } from "../core/format.js";
import { toAbsoluteUrl } from "../core/url.js";
import { copyButton } from "../ui/copy-button.js";
import { showDialog, submitHandler } from "../ui/dialog.js";

/** @type {Array<[seconds: number, label: string]>} */
const EXPIRIES = [
  [86_400, "1 day"],
  [7 * 86_400, "1 week"],
  [90 * 86_400, "90 days"],
  [365 * 86_400, "1 year"],
  [0, "never"],
];
const DEFAULT_EXPIRY_S = 90 * 86_400;

/** Shows a secret in a dialog that only its button closes. @param {string} title @param {string} text @param {string} secret @param {string} secretName the name of the secret on the copy button */
function showSecret(title, text, secret, secretName) {
  return showDialog(
    title,
    (close) => [
      h("p", null, text),
      h("div", { class: "secret" }, h("code", { "aria-label": secretName }, secret), h("div", null, copyButton(secret, `Copy ${secretName}`, `Copy ${secretName}`))),
      h("div", { class: "acts" }, h("button", { type: "button", class: "main-act", autofocus: true, on: { click: () => close(null) } }, "I have saved it")),
    ],
    { isLocked: true },
  );
}

/** Prompts for a name and an expiry, creates the key and shows it. @param {{user?: string}} [options] of another user @returns {Promise<boolean>} */
export async function createKey(options = {}) {
  const made = await showDialog(options.user ? `New key for ${options.user}` : "New key", (close, isFirm) => {
    const [name, expiry] = [uniqueId("name"), uniqueId("expiry")];
    const input = /** @type {HTMLInputElement} */ (h("input", { id: name, type: "text", maxlength: "100", placeholder: "nightly import", autofocus: true, autocomplete: "off" }));
    const select = /** @type {HTMLSelectElement} */ (h("select", { id: expiry }, EXPIRIES.map(([seconds, caption]) => h("option", { value: String(seconds), selected: seconds === DEFAULT_EXPIRY_S }, caption))));
    const { errorLine, submit } = submitHandler(close, isFirm, () => {
      const seconds = Number(select.value);
      return api.post("/v1/keys", { name: input.value.trim(), ...(seconds ? { expires_in_s: seconds } : {}), ...(options.user ? { user: options.user } : {}) });
    });
    return [
      h("label", { class: "field", for: name }, "Name", input),
      h("label", { class: "field", for: expiry }, "Expires after", select),
      errorLine,
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Go back"), h("button", { type: "submit", class: "main-act", on: { click: submit } }, "Create key")),
    ];
  });
  if (!made) return false;
  const { key, expires_at } = /** @type {any} */ (made);
  await showSecret("Save this key", `The key is not stored and cannot be shown again. Send it as “Authorization: Bearer …”. ${expires_at ? `It expires on ${new Date(expires_at).toLocaleDateString("en-CA")}.` : "It does not expire."}`, key, "the key");
  return true;
}

/** @param {string} user */
export async function createSignInLink(user) {
  const made = await api.post(`/v1/users/${encodeURIComponent(user)}/link`);
  await showSecret(`Sign-in link for ${user}`, `Anyone who opens this link is signed in as ${user}. It works once, within ${formatDuration(made.expires_in_s)}, and is not shown again.`, toAbsoluteUrl(made.path), "the link");
}
