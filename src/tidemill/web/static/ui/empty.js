// @ts-check
/** What to say when there is nothing to show: what would make a difference, ready to be copied. */
import { ApiError } from "../core/api.js";
import { h } from "../core/dom.js";
import { icon } from "./icons.js";

const TOLD_MS = 4_000;

/** A command that can be copied. @param {string} label @param {string} text */
export function recipe(label, text) {
  return h("div", { class: "recipe" }, h("p", { class: "hint" }, label), h("div", null, h("pre", { tabindex: "0" }, h("code", null, text)), copyButton(text, `Copy: ${label}`)));
}

/** @param {string | (() => string)} text @param {string} label @param {string} [said] */
export function copyButton(text, label, said = "Copy") {
  const shown = h("span", { "aria-live": "polite" }, said);
  let timer = 0;
  // Said in the button itself: a message elsewhere would be behind a dialog.
  const tell = (/** @type {string} */ word) => {
    shown.textContent = word;
    window.clearTimeout(timer);
    timer = window.setTimeout(() => (shown.textContent = said), TOLD_MS);
  };
  const copy = async () => {
    const what = typeof text === "function" ? text() : text;
    try {
      await navigator.clipboard.writeText(what); // not there where the page came over plain HTTP from another machine
      tell("Copied");
    } catch {
      tell("This browser does not let pages copy: select it yourself");
    }
  };
  return h("button", { type: "button", class: "small", "aria-label": label, on: { click: copy } }, icon("copy"), shown);
}

/** @param {{title: import("../core/dom.js").Child, says: import("../core/dom.js").Child, recipes?: Array<[label: string, text: string]>, acts?: import("../core/dom.js").Child[]}} told */
export function empty({ title, says, recipes = [], acts = [] }) {
  return h("div", { class: "empty" }, h("h2", null, title), h("p", null, says), acts, recipes.map(([label, text]) => recipe(label, text)));
}

/** Something could not be loaded. @param {Error} error @param {() => void} again */
export function failure(error, again) {
  const id = error instanceof ApiError && error.requestId ? h("small", { class: "muted mono" }, `request ${error.requestId}`) : null;
  return h("div", { class: "notice", role: "alert", data: { tone: "bad" } }, h("span", null, error.message), id, h("button", { type: "button", class: "small", on: { click: again } }, icon("retry"), "Try again"));
}

/** While nothing is there yet. @param {string} [says] */
export function waiting(says = "Loading …") {
  return h("p", { class: "muted", role: "status" }, says);
}
