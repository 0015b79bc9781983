// @ts-check
/** The way of a file into a table, and where on it somebody is. */
import { h } from "../core/dom.js";
import { href } from "../core/router.js";

export const STEPS = ["file", "preview", "columns", "check", "import"];
const LABELS = { file: "File", preview: "Preview", columns: "Columns", check: "Check", import: "Import" };

/**
 * @param {() => string} now
 * @param {(step: string) => Record<string, any> | null} wordsOf the words of the address of a step; null where there is no way to it
 */
export function stepBar(now, wordsOf) {
  const at = () => STEPS.indexOf(now());
  /** @param {string} step @param {number} n */
  const entry = (step, n) => {
    const said = [h("span", { class: "step-number", "aria-hidden": "true" }, String(n + 1)), /** @type {any} */ (LABELS)[step]];
    const words = n === at() ? null : wordsOf(step);
    return h("li", { "aria-current": n === at() ? "step" : null, data: { state: n < at() ? "past" : n > at() ? "ahead" : "now" } }, words === null ? h("span", null, said) : h("a", { href: href("/imports/new", words) }, said));
  };
  return h("nav", { "aria-label": "Steps" }, h("ol", { class: "steps" }, () => STEPS.map(entry)));
}
