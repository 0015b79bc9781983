// @ts-check
/** What is shown this once, and how it is made: API keys and one-time links. */
import { api } from "../core/api.js";
import { h, uid } from "../core/dom.js";
import { duration } from "../core/format.js";
import { wholeAddress } from "../core/place.js";
import { answering, showDialog } from "../ui/dialog.js";
import { copyButton } from "../ui/empty.js";

/** @type {Array<[seconds: number, says: string]>} */
const EXPIRIES = [
  [86_400, "a day"],
  [7 * 86_400, "a week"],
  [90 * 86_400, "90 days"],
  [365 * 86_400, "a year"],
  [0, "never"],
];
const USUAL_S = 90 * 86_400;

/** Neither Escape nor a click beside it closes this. @param {string} title @param {string} says @param {string} secret @param {string} act what the copying button copies */
export function showSecret(title, says, secret, act) {
  return showDialog(
    title,
    (close) => [
      h("p", null, says),
      h("div", { class: "secret" }, h("code", { "aria-label": act }, secret), h("div", null, copyButton(secret, `Copy ${act}`, `Copy ${act}`))),
      h("div", { class: "acts" }, h("button", { type: "button", class: "main-act", autofocus: true, on: { click: () => close(null) } }, "I have kept it")),
    ],
    { isFirm: true },
  );
}

/** Ask for a name and an expiry, make the key, show it. @param {{user?: string}} [how] for somebody else @returns {Promise<boolean>} */
export async function makeKey(how = {}) {
  const made = await showDialog(how.user ? `A key for ${how.user}` : "A new key", (close, isFirm) => {
    const [name, expiry] = [uid("name"), uid("expiry")];
    const input = /** @type {HTMLInputElement} */ (h("input", { id: name, type: "text", maxlength: "100", placeholder: "nightly import", autofocus: true, autocomplete: "off" }));
    const select = /** @type {HTMLSelectElement} */ (h("select", { id: expiry }, EXPIRIES.map(([seconds, says]) => h("option", { value: String(seconds), selected: seconds === USUAL_S }, says))));
    const { fault, go } = answering(close, isFirm, () => {
      const seconds = Number(select.value);
      return api.post("/v1/keys", { name: input.value.trim(), ...(seconds ? { expires_in_s: seconds } : {}), ...(how.user ? { user: how.user } : {}) });
    });
    return [
      h("label", { class: "field", for: name }, "What it is for", input),
      h("label", { class: "field", for: expiry }, "Good for", select),
      fault,
      h("div", { class: "acts" }, h("button", { type: "button", disabled: isFirm, on: { click: () => close(null) } }, "Not now"), h("button", { type: "submit", class: "main-act", on: { click: go } }, "Make the key")),
    ];
  });
  if (!made) return false;
  const { key, expires_at } = /** @type {any} */ (made);
  await showSecret("The key, this once", `It is not kept and cannot be shown again. Send it as “Authorization: Bearer …”. ${expires_at ? `It is good until ${new Date(expires_at).toLocaleDateString("en-CA")}.` : "It does not expire."}`, key, "the key");
  return true;
}

/** @param {string} user */
export async function makeLink(user) {
  const made = await api.post(`/v1/users/${encodeURIComponent(user)}/link`);
  await showSecret(`A link for ${user}`, `Whoever follows it is signed in as ${user}: once, within ${duration(made.expires_in_s)}. It is not shown again.`, wholeAddress(made.path), "the link");
}
