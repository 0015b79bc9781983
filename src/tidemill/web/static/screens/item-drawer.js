// @ts-check
/** One item in a drawer: input, result, error with traceback, attempts, and a form to fix it if it failed. */
import { api, isAbortError } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatDateTime, formatMilliseconds, formatNumber } from "../core/format.js";
import { parse, stringify } from "../core/json.js";
import { pollUntil } from "../core/polling.js";
import { effect, onCleanup, signal } from "../core/signal.js";
import { toAbsoluteUrl } from "../core/url.js";
import { userName } from "../core/user-names.js";
import { copyButton } from "../ui/copy-button.js";
import { openDrawer } from "../ui/drawer.js";
import { errorNotice, loadingNotice } from "../ui/notices.js";
import { singleFlight } from "../ui/single-flight.js";
import { OPEN_ITEM_STATUSES, statusBadge } from "../ui/status.js";
import { showToast } from "../ui/toast.js";

const FIXABLE_STATUSES = ["failed", "not_found"];

/**
 * @param {import("../core/signal.js").Signal<any>} job
 * @param {number} seq
 * @param {{changed: (item: any) => void, focusBack?: () => void}} options `changed` is called with each new state after the item was requeued
 */
export function openItemDrawer(job, seq, options) {
  const item = signal(/** @type {any} */ (null));
  const error = signal(/** @type {Error | null} */ (null));
  const path = `/v1/jobs/${job.peek().id}/items/${seq}`;
  const stop = new AbortController(); // aborted with the drawer
  let isRequeued = false; // poll until the item is settled
  const show = (/** @type {any} */ found) => {
    if (stringify(found) === stringify(item.peek())) return;
    const hadFocus = drawer.element.contains(document.activeElement);
    item.value = found;
    // The focused element was removed. Focus the drawer, so that Escape still closes it.
    if (hadFocus && !drawer.element.contains(document.activeElement)) /** @type {HTMLElement | null} */ (drawer.element.querySelector(".body"))?.focus({ preventScroll: true });
    if (isRequeued) options.changed(found);
  };
  const loadItem = async () => {
    error.value = null;
    try {
      await pollUntil(() => api.getExact(path, {}, stop.signal), (found) => !isRequeued || !OPEN_ITEM_STATUSES.includes(found.status), { signal: stop.signal, onStep: show });
    } catch (caught) {
      if (!isAbortError(caught)) error.value = /** @type {Error} */ (caught);
    }
  };
  loadItem();
  const drawer = openDrawer(
    `Row ${formatNumber(seq + 1)}`,
    () => {
      onCleanup(() => stop.abort());
      return [() => (error.value ? errorNotice(error.value, loadItem) : item.value === null ? loadingNotice() : details(item.value))];
    },
    { onClose: options.focusBack },
  );

  /** @param {any} found */
  function details(found) {
    return [
      h("div", { class: "row between" }, statusBadge(found.status), h("span", { class: "row" }, copyButton(() => stringify(found, 2), "Copy this item as JSON", "JSON"), copyButton(() => `curl ${toAbsoluteUrl(path)} -H "Authorization: Bearer $KEY"`, "Copy a curl command for this item", "curl"))),
      factList(found),
      found.error ? errorSection(found.error) : null,
      FIXABLE_STATUSES.includes(found.status) ? fixForm(found) : jsonSection("Input", found.input),
      found.fixes.length ? fixesSection(found) : null,
      found.result === null || found.result === undefined ? null : jsonSection("Result", found.result),
      found.normalized === null || found.normalized === undefined ? null : jsonSection("Normalized", found.normalized),
      found.defect ? jsonSection("Parse error", found.defect) : null,
      found.attempt_history.length ? attemptsSection(found.attempt_history) : null,
    ];
  }

  /** @param {any} found */
  function fixForm(found) {
    const before = stringify(found.input, 2);
    const field = /** @type {HTMLTextAreaElement} */ (h("textarea", { rows: String(Math.min(16, before.split("\n").length + 1)), spellcheck: "false", "aria-label": "Input, as JSON" }));
    field.value = before;
    const errorLine = h("p", { class: "fault", role: "alert", hidden: true });
    const save = singleFlight(async () => {
      errorLine.hidden = true;
      try {
        if (field.value.trim() !== before.trim()) {
          requireJson(field.value);
          await api.patch(path, undefined, { raw: `{"input": ${field.value}}` });
        }
        await api.post(`/v1/jobs/${job.peek().id}/reprocess`, { scope: "items", item_ids: [found.id], statuses: FIXABLE_STATUSES });
        showToast(`Row ${formatNumber(seq + 1)} requeued`, "ok");
        isRequeued = true;
        loadItem();
      } catch (caught) {
        errorLine.textContent = /** @type {Error} */ (caught).message;
        errorLine.hidden = false;
      }
    });
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      save(event);
    };
    effect(() => {
      field.setAttribute("aria-invalid", "false");
    });
    return h("form", { class: "stack", on: { submit } }, h("h3", null, "Input"), field, errorLine, h("div", { class: "row" }, h("button", { type: "submit", class: "main-act" }, "Save and retry"), h("span", { class: "hint" }, "The original input is kept.")));
  }
}

/** Throws a readable error if the text is not JSON. @param {string} text */
function requireJson(text) {
  try {
    parse(text);
  } catch (error) {
    throw new Error(`Invalid JSON: ${/** @type {Error} */ (error).message}`, { cause: error });
  }
}

/** @param {any} found */
function factList(found) {
  const facts = [
    ["Attempts", formatNumber(found.attempts)],
    ["Duration", found.duration_ms === null || found.duration_ms === undefined ? null : formatMilliseconds(found.duration_ms)],
    ["Updated", formatDateTime(found.updated_at)],
    ["Worker", found.locked_by],
    ["Next attempt", formatDateTime(found.due_at)],
    ["ID", found.id],
  ];
  return h("dl", { class: "facts" }, facts.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", { class: name === "ID" ? "mono small" : null }, value)]));
}

/** @param {any} error */
function errorSection(error) {
  const more = Object.entries(error).filter(([name, value]) => !["code", "reason", "retryable", "row", "attempt", "type", "traceback"].includes(name) && value !== null);
  return h(
    "section",
    { class: "stack tight" },
    h("h3", null, "Error"),
    h("p", null, h("strong", null, error.code ?? "error"), error.reason ? `: ${error.reason}` : "", error.attempt ? h("span", { class: "muted" }, ` (attempt ${formatNumber(error.attempt)})`) : null),
    error.retryable === false ? h("p", { class: "hint" }, "This error is permanent. A retry with the same input will fail again.") : null,
    error.traceback ? tracebackSection(error.traceback) : null,
    more.length ? jsonSection("Details", Object.fromEntries(more)) : null,
  );
}

/** @param {string} text */
function tracebackSection(text) {
  return h(
    "details",
    { open: true },
    h("summary", null, "Traceback"),
    h("div", { class: "stack tight" }, h("pre", { class: "json", tabindex: "0" }, text), h("div", null, copyButton(text, "Copy the traceback"))),
  );
}

/** @param {any[]} attempts oldest first */
function attemptsSection(attempts) {
  const row = (/** @type {any} */ one) =>
    h(
      "tr",
      null,
      h("td", null, one.attempt ? formatNumber(one.attempt) : "–"),
      h("td", null, formatDateTime(one.at)),
      h("td", { class: "mono small" }, one.worker ?? "–"),
      h("td", null, one.duration_ms === null || one.duration_ms === undefined ? "–" : formatMilliseconds(one.duration_ms)),
      h("td", null, statusBadge(one.status), one.code ? h("span", { class: "muted" }, ` ${one.code}`) : null),
    );
  const heads = ["Attempt", "Ended", "Worker", "Duration", "Outcome"];
  const table = h("table", { "aria-label": "Attempts" }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col" }, label)))), h("tbody", null, attempts.map(row)));
  return h("section", { class: "stack tight" }, h("h3", null, "Attempts"), h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Attempts" }, table));
}

/** @param {any} found */
function fixesSection(found) {
  return h("section", { class: "stack tight" }, h("h3", null, "Fixes"), h("ol", { class: "stack tight small" }, found.fixes.map((/** @type {any} */ fix) => h("li", null, `${formatDateTime(fix.at)} by `, () => userName(fix.by)))), jsonSection("Original input", found.original));
}

/** @param {string} title @param {any} value */
function jsonSection(title, value) {
  return h("section", { class: "stack tight" }, h("h3", null, title), h("pre", { class: "json", tabindex: "0" }, stringify(value, 2)));
}
