// @ts-check
/** What has changed in a list waits behind a button that says how much it is. It lies on the edge of the list: when it comes, nothing moves. */
import { h } from "../core/dom.js";
import { icon } from "./icons.js";

/** @param {() => string} says empty while nothing has changed @param {() => void} show @param {...import("../core/dom.js").Child} list */
export function underPill(says, show, ...list) {
  return h("div", { class: "under-pill" }, h("button", { type: "button", class: "pill small", hidden: () => says() === "", on: { click: show } }, icon("up"), says), list);
}
