// @ts-check
/** Buttons that copy text, and commands that users can copy. */
import { h } from "../core/dom.js";
import { icon } from "./icons.js";

const FEEDBACK_MS = 4_000;

/** A command with a copy button. @param {string} label @param {string} text */
export function commandSnippet(label, text) {
  return h("div", { class: "recipe" }, h("p", { class: "hint" }, label), h("div", null, h("pre", { tabindex: "0" }, h("code", null, text)), copyButton(text, `Copy: ${label}`)));
}

/** @param {string | (() => string)} text @param {string} label @param {string} [caption] */
export function copyButton(text, label, caption = "Copy") {
  const captionElement = h("span", { "aria-live": "polite" }, caption);
  let timer = 0;
  // Feedback is in the button, because a toast would be behind a dialog.
  const showFeedback = (/** @type {string} */ word) => {
    captionElement.textContent = word;
    window.clearTimeout(timer);
    timer = window.setTimeout(() => (captionElement.textContent = caption), FEEDBACK_MS);
  };
  const copy = async () => {
    const what = typeof text === "function" ? text() : text;
    try {
      await navigator.clipboard.writeText(what); // unavailable if the page was loaded over plain HTTP from another machine
      showFeedback("Copied");
    } catch {
      showFeedback("The browser blocked the clipboard. Select the text and copy it.");
    }
  };
  return h("button", { type: "button", class: "small", "aria-label": label, on: { click: copy } }, icon("copy"), captionElement);
}
