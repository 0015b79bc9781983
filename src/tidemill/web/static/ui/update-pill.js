// @ts-check
/** A button over the edge of a list that shows pending changes, without moving the list. */
import { h } from "../core/dom.js";
import { icon } from "./icons.js";

/** @param {() => string} text empty if nothing has changed @param {() => void} show @param {...import("../core/dom.js").Child} list */
export function withUpdatePill(text, show, ...list) {
  return h("div", { class: "under-pill" }, h("button", { type: "button", class: "pill small", hidden: () => text() === "", on: { click: show } }, icon("top"), text), list);
}
