// @ts-check
/** The steps of an import. */
import { h } from "../core/dom.js";
import { href } from "../core/router.js";

const STEPS = ["file", "preview", "columns", "check", "import"];
const LABELS = { file: "File", preview: "Preview", columns: "Columns", check: "Check", import: "Import" };

/**
 * @param {() => string} now
 * @param {(step: string) => Record<string, any> | null} paramsOf query parameters of a step; null if the user cannot go there
 */
export function stepBar(now, paramsOf) {
  const at = () => STEPS.indexOf(now());
  /** @param {string} step @param {number} n */
  const entry = (step, n) => {
    const content = [h("span", { class: "step-number", "aria-hidden": "true" }, String(n + 1)), /** @type {any} */ (LABELS)[step]];
    const params = n === at() ? null : paramsOf(step);
    return h("li", { "aria-current": n === at() ? "step" : null, data: { state: n < at() ? "past" : n > at() ? "ahead" : "now" } }, params === null ? h("span", null, content) : h("a", { href: href("/imports/new", params) }, content));
  };
  return h("nav", { "aria-label": "Steps" }, h("ol", { class: "steps" }, () => STEPS.map(entry)));
}
