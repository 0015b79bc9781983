// @ts-check
/** What the service did not take, and why. */
import { h } from "../core/dom.js";
import { failure } from "./empty.js";

/** Everything that is wrong, at once. @param {any} error @param {(() => void) | null} again */
export function refusal(error, again) {
  const faults = (error.faults ?? []).map((/** @type {any} */ one) => one.detail);
  if (faults.length < 2) return again ? failure(error, again) : h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, error.message);
  return h("div", { class: "notice", role: "alert", data: { tone: "bad" } }, h("ul", { class: "told" }, faults.map((/** @type {string} */ one) => h("li", null, one))));
}
