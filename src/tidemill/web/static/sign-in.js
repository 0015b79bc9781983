// @ts-check
/** Signing in: with a one-time link, which needs no screen, or with an API key. */
import { ApiError, isSignedOut, me, signIn } from "./core/api.js";
import { h, uid } from "./core/dom.js";
import { go, query } from "./core/router.js";
import { path } from "./core/router.js";
import { showDialog } from "./ui/dialog.js";
import { recipe } from "./ui/empty.js";

/** @param {() => void} onDone @param {{again?: boolean}} [how] */
function form(onDone, how = {}) {
  const fault = h("p", { class: "fault", role: "alert", hidden: true });
  const id = uid("key");
  const input = /** @type {HTMLInputElement} */ (h("input", { id, type: "password", required: true, autocomplete: "current-password", placeholder: "tm_…", autofocus: true, spellcheck: "false" }));
  const button = /** @type {HTMLButtonElement} */ (h("button", { type: "submit", class: "main-act" }, how.again ? "Sign in again" : "Sign in"));
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const said = input.value.trim();
    if (said === "") return input.focus();
    button.disabled = true;
    try {
      // A whole link may be pasted too: what follows /sign-in/ is its secret.
      const link = said.split("/sign-in/")[1];
      await signIn(link ? { link } : { key: said });
      onDone();
    } catch (error) {
      const status = error instanceof ApiError ? error.status : 0;
      fault.textContent = status === 401 ? "This key or link is not good: it may be mistyped, used, revoked or too old." : /** @type {Error} */ (error).message;
      fault.hidden = false;
      input.setAttribute("aria-invalid", "true");
      input.select();
    } finally {
      button.disabled = false;
    }
  };
  return { submit, parts: [h("label", { class: "field", for: id }, "API key, or one-time link", input), fault, h("div", { class: "acts row" }, button)] };
}

export function signInScreen() {
  document.title = "Sign in · Tidemill";
  const asked = query.peek().get("next");
  const next = path.peek() === "/sign-in" ? asked || "/jobs" : path.peek() + (query.peek().size ? `?${query.peek()}` : "");
  const { submit, parts } = form(() => {
    const [to, words] = (next.startsWith("/") ? next.replace(/^[/\\]+/, "/") : "/jobs").split("?");
    go(to === "/" ? "/jobs" : to, Object.fromEntries(new URLSearchParams(words ?? "")), { replace: true });
  });
  const problem = query.peek().get("problem") === "link" ? h("p", { class: "notice", role: "alert" }, "This link was used, or is too old. Ask for another one.") : null;
  return h(
    "main",
    { class: "sign-in" },
    h(
      "form",
      { class: "card", on: { submit } },
      h("h1", { class: "brand" }, h("img", { src: new URL("icon.svg", import.meta.url).pathname, alt: "" }), "Tidemill"),
      problem,
      parts,
      h("p", { class: "hint" }, "There are no passwords. Who runs this service can make you a one-time link or a key:"),
      recipe("A link, good once", "tidemill users link NAME"),
    ),
  );
}

let isAsking = false;

/** The session is over; what is on the screen stays. */
export async function signInAgain() {
  if (isAsking) return;
  isAsking = true;
  const was = me.peek()?.name;
  await showDialog(
    "Signed out",
    (close) => {
      const { submit, parts } = form(() => close(true), { again: true });
      const box = h("div", { class: "stack", on: { keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && submit(event) } }, parts);
      box.querySelector("button[type=submit]")?.addEventListener("click", submit);
      return [h("p", null, `The session of ${was ?? "this browser"} is over. Nothing on this page is lost: sign in, and go on.`), box];
    },
    { isFirm: true },
  );
  isAsking = false;
  if (isSignedOut.peek()) signInAgain();
}
