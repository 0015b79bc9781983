// @ts-check
/** Notices for empty, failed and loading states. */
import { ApiError } from "../core/api.js";
import { h } from "../core/dom.js";
import { commandSnippet } from "./copy-button.js";
import { icon } from "./icons.js";

/** With `areFolded`, the user unfolds the commands: they are for people who write programs. @param {{title: import("../core/dom.js").Child, text: import("../core/dom.js").Child, commands?: Array<[label: string, text: string]>, areFolded?: boolean, actions?: import("../core/dom.js").Child[]}} options */
export function emptyState({ title, text, commands = [], areFolded = false, actions = [] }) {
  const snippets = commands.map(([label, command]) => commandSnippet(label, command));
  return h("div", { class: "empty" }, h("h2", null, title), h("p", null, text), actions, areFolded ? h("details", { class: "recipes" }, h("summary", null, "From a program or the command line"), h("div", { class: "stack" }, snippets)) : snippets);
}

/** A failed request, with a retry button. @param {Error} error @param {() => void} retry */
export function errorNotice(error, retry) {
  const id = error instanceof ApiError && error.requestId ? h("small", { class: "muted mono" }, `request ${error.requestId}`) : null;
  return h("div", { class: "notice", role: "alert", data: { tone: "bad" } }, h("span", null, error.message), id, h("button", { type: "button", class: "small", on: { click: retry } }, icon("refresh"), "Try again"));
}

/** All validation errors of a request. @param {Error} error @param {(() => void) | null} retry */
export function validationNotice(error, retry) {
  const details = error instanceof ApiError ? error.errors.map((one) => one.detail) : [];
  if (details.length < 2) return retry ? errorNotice(error, retry) : h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, error.message);
  return h("div", { class: "notice", role: "alert", data: { tone: "bad" } }, h("ul", { class: "told" }, details.map((one) => h("li", null, one))));
}

/** Shown while data is loading. @param {string} [text] */
export function loadingNotice(text = "Loading …") {
  return h("p", { class: "muted", role: "status" }, text);
}
