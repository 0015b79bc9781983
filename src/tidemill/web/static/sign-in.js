// @ts-check
/** Sign-in with a sign-in link or an API key. */
import { ApiError, currentUser, isSignedOut, signIn } from "./core/api.js";
import { h, uniqueId } from "./core/dom.js";
import { navigate, path, query } from "./core/router.js";
import { commandSnippet } from "./ui/copy-button.js";
import { showDialog } from "./ui/dialog.js";

/** @param {() => void} onDone @param {{again?: boolean}} [options] */
function signInForm(onDone, options = {}) {
  const errorLine = h("p", { class: "fault", role: "alert", hidden: true });
  const id = uniqueId("key");
  const input = /** @type {HTMLInputElement} */ (h("input", { id, type: "password", required: true, autocomplete: "current-password", placeholder: "tm_…", autofocus: true, spellcheck: "false" }));
  const button = /** @type {HTMLButtonElement} */ (h("button", { type: "submit", class: "main-act" }, options.again ? "Sign in again" : "Sign in"));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const secret = input.value.trim();
    if (secret === "") return input.focus();
    button.disabled = true;
    try {
      // Users may paste the whole link; its secret follows /sign-in/.
      const link = secret.split("/sign-in/")[1];
      await signIn(link ? { link } : { key: secret });
      onDone();
    } catch (error) {
      const status = error instanceof ApiError ? error.status : 0;
      errorLine.textContent = status === 401 ? "Invalid key or link. It may be mistyped, already used, revoked or expired." : /** @type {Error} */ (error).message;
      errorLine.hidden = false;
      input.setAttribute("aria-invalid", "true");
      input.select();
    } finally {
      button.disabled = false;
    }
  };
  return { submit, parts: [h("label", { class: "field", for: id }, "API key or sign-in link", input), errorLine, h("div", { class: "acts row" }, button)] };
}

export function signInScreen() {
  document.title = "Sign in · Tidemill";
  const requested = query.peek().get("next");
  const next = path.peek() === "/sign-in" ? requested || "/" : path.peek() + (query.peek().size ? `?${query.peek()}` : "");
  const { submit, parts } = signInForm(() => {
    const [to, search] = (next.startsWith("/") ? next.replace(/^[/\\]+/, "/") : "/jobs").split("?");
    navigate(to, Object.fromEntries(new URLSearchParams(search ?? "")), { replace: true });
  });
  const problem = query.peek().get("problem") === "link" ? h("p", { class: "notice", role: "alert" }, "This sign-in link was already used or has expired. Ask an admin for a new one.") : null;
  return h(
    "main",
    { class: "sign-in" },
    h(
      "form",
      { class: "card", on: { submit } },
      h("h1", { class: "brand" }, h("img", { src: new URL("icon.svg", import.meta.url).pathname, alt: "" }), "Tidemill"),
      problem,
      parts,
      h("p", { class: "hint" }, "There are no passwords. Ask an admin for a sign-in link or an API key. If you have a shell on the machine that runs Tidemill, create a link with the command below. Then open the link, or paste it above."),
      commandSnippet("Create a sign-in link that works once", "tidemill users link"),
    ),
  );
}

let isPromptOpen = false;

/** Asks the user to sign in again after the session ended. The screen keeps its state. */
export async function promptSignIn() {
  if (isPromptOpen) return;
  isPromptOpen = true;
  const was = currentUser.peek()?.name;
  await showDialog(
    "Signed out",
    (close) => {
      const { submit, parts } = signInForm(() => close(true), { again: true });
      const box = h("div", { class: "stack", on: { keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && submit(event) } }, parts);
      box.querySelector("button[type=submit]")?.addEventListener("click", submit);
      return [h("p", null, `The session of ${was ?? "this browser"} has ended. Sign in to continue; nothing on this page is lost.`), box];
    },
    { isLocked: true },
  );
  isPromptOpen = false;
  if (isSignedOut.peek()) promptSignIn();
}
