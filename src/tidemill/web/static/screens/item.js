// @ts-check
/** One item, whole, in a drawer: input, result, what went wrong; and a correction, if it failed. */
import { api, isAbort } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, milliseconds, wholeMoment } from "../core/format.js";
import { parse, stringify } from "../core/json.js";
import { until } from "../core/load.js";
import { wholeAddress } from "../core/place.js";
import { effect, onCleanup, signal } from "../core/signal.js";
import { userName } from "../core/users.js";
import { openDrawer } from "../ui/drawer.js";
import { copyButton, failure, waiting } from "../ui/empty.js";
import { press } from "../ui/press.js";
import { OPEN_ITEMS, status } from "../ui/status.js";
import { toast } from "../ui/toast.js";

const MENDABLE = ["failed", "not_found"];

/**
 * @param {import("../core/signal.js").Signal<any>} job
 * @param {number} seq
 * @param {{changed: (item: any) => void, focusBack?: () => void}} how `changed` what was sent round again is so now
 */
export function openItem(job, seq, how) {
  const item = signal(/** @type {any} */ (null));
  const error = signal(/** @type {Error | null} */ (null));
  const path = `/v1/jobs/${job.peek().id}/items/${seq}`;
  const stop = new AbortController(); // with the drawer
  let isSent = false; // and followed until it is settled
  const show = (/** @type {any} */ found) => {
    if (stringify(found) === stringify(item.peek())) return;
    const hadFocus = drawer.element.contains(document.activeElement);
    item.value = found;
    // What had it is gone: who presses Escape now still means the drawer.
    if (hadFocus && !drawer.element.contains(document.activeElement)) /** @type {HTMLElement | null} */ (drawer.element.querySelector(".body"))?.focus({ preventScroll: true });
    if (isSent) how.changed(found);
  };
  const ask = async () => {
    error.value = null;
    try {
      await until(() => api.rows(path, {}, stop.signal), (found) => !isSent || !OPEN_ITEMS.includes(found.status), { signal: stop.signal, step: show });
    } catch (problem) {
      if (!isAbort(problem)) error.value = /** @type {Error} */ (problem);
    }
  };
  ask();
  const drawer = openDrawer(
    `Row ${count(seq + 1)}`,
    () => [onCleanup(() => stop.abort()), () => (error.value ? failure(error.value, ask) : item.value === null ? waiting() : details(item.value))],
    { onClose: how.focusBack },
  );

  /** @param {any} found */
  function details(found) {
    return [
      h("div", { class: "row between" }, status(found.status), h("span", { class: "row" }, copyButton(() => stringify(found, 2), "Copy this item as JSON", "JSON"), copyButton(() => `curl ${wholeAddress(path)} -H "Authorization: Bearer $KEY"`, "Copy a curl command for this item", "curl"))),
      facts(found),
      found.error ? problem(found.error) : null,
      MENDABLE.includes(found.status) ? mend(found) : part("Input", found.input),
      found.fixes.length ? corrections(found) : null,
      found.result === null || found.result === undefined ? null : part("Result", found.result),
      found.normalized === null || found.normalized === undefined ? null : part("Normalized", found.normalized),
      found.defect ? part("Why its record could not be read", found.defect) : null,
    ];
  }

  /** @param {any} found */
  function mend(found) {
    const before = stringify(found.input, 2);
    const field = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: String(Math.min(16, before.split("\n").length + 1)), spellcheck: "false", "aria-label": "Input, as JSON" }));
    field.value = before;
    const fault = h("p", { class: "fault", role: "alert", hidden: true });
    const save = press(async () => {
      fault.hidden = true;
      try {
        if (field.value.trim() !== before.trim()) {
          check(field.value);
          await api.patch(path, undefined, { raw: `{"input": ${field.value}}` });
        }
        await api.post(`/v1/jobs/${job.peek().id}/reprocess`, { scope: "items", item_ids: [found.id], statuses: MENDABLE });
        toast(`Row ${count(seq + 1)} was sent round again`, "ok");
        isSent = true;
        ask();
      } catch (problem) {
        fault.textContent = /** @type {Error} */ (problem).message;
        fault.hidden = false;
      }
    });
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      save(event);
    };
    effect(() => {
      field.setAttribute("aria-invalid", "false");
    });
    return h("form", { class: "stack", on: { submit } }, h("h3", null, "Input"), field, fault, h("div", { class: "row" }, h("button", { type: "submit", class: "main-act" }, "Save and run again"), h("span", { class: "hint" }, "The original is kept beside the correction.")));
  }
}

/** Whether text is JSON, said in our words. @param {string} text */
function check(text) {
  try {
    parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${/** @type {Error} */ (error).message}`);
  }
}

/** @param {any} found */
function facts(found) {
  const said = [
    ["Attempts", count(found.attempts)],
    ["Took", found.duration_ms === null || found.duration_ms === undefined ? null : milliseconds(found.duration_ms)],
    ["Changed", wholeMoment(found.updated_at)],
    ["In hand of", found.locked_by],
    ["Next try", wholeMoment(found.due_at)],
    ["Id", found.id],
  ];
  return h("dl", { class: "facts" }, said.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", { class: name === "Id" ? "mono small" : null }, value)]));
}

/** @param {any} error */
function problem(error) {
  const more = Object.entries(error).filter(([name, value]) => !["code", "reason", "retryable", "row", "attempt"].includes(name) && value !== null);
  return h(
    "section",
    { class: "stack tight" },
    h("h3", null, "What went wrong"),
    h("p", null, h("strong", null, error.code ?? "error"), error.reason ? `: ${error.reason}` : "", error.attempt ? h("span", { class: "muted" }, ` (attempt ${count(error.attempt)})`) : null),
    error.retryable === false ? h("p", { class: "hint" }, "Sending it round again as it is will not help.") : null,
    more.length ? part("More", Object.fromEntries(more)) : null,
  );
}

/** @param {any} found */
function corrections(found) {
  return h("section", { class: "stack tight" }, h("h3", null, "Corrections"), h("ol", { class: "stack tight small" }, found.fixes.map((/** @type {any} */ fix) => h("li", null, `${wholeMoment(fix.at)} by `, () => userName(fix.by)))), part("As it was submitted", found.original));
}

/** @param {string} title @param {any} value */
function part(title, value) {
  return h("section", { class: "stack tight" }, h("h3", null, title), h("pre", { class: "json", tabindex: "0" }, stringify(value, 2)));
}
