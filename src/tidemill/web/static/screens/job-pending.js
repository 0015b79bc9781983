// @ts-check
/** What of a job waits or is in hand, for longest first, and why. */
import { api, me } from "../core/api.js";
import { h } from "../core/dom.js";
import { count, moment, wholeMoment } from "../core/format.js";
import { cellText } from "../core/json.js";
import { words } from "../core/router.js";
import { computed, effect, onCleanup, scope as inScope, signal, untracked } from "../core/signal.js";
import { empty } from "../ui/empty.js";
import { statusToggles } from "../ui/filter-bar.js";
import { makeGrid } from "../ui/grid.js";
import { CursorSource } from "../ui/source.js";
import { OPEN_ITEMS, setStatus, status } from "../ui/status.js";
import { openItem } from "./item.js";
import { text } from "./items.js";

/** @param {import("../core/signal.js").Signal<any>} job */
export function pendingView(job) {
  const chosen = words("statuses");
  const statuses = computed(() => (chosen.value.length ? chosen.value.filter((one) => OPEN_ITEMS.includes(one)) : OPEN_ITEMS));
  const box = h("div", { class: "screen" });
  let end = () => {};
  effect(() => {
    const asked = statuses.value;
    end();
    untracked(() => {
      const [made, over] = inScope(() => list(job, asked));
      end = over;
      box.replaceChildren(made);
    });
  });
  onCleanup(() => end());
  return h("div", { class: "screen" }, h("div", { class: "filters" }, statusToggles("statuses", "Status", () => OPEN_ITEMS.map((value) => ({ value, n: job.value.counts[value] })))), box);
}

/** @param {import("../core/signal.js").Signal<any>} job @param {string[]} statuses */
function list(job, statuses) {
  const { id } = job.peek();
  let knowsWhy = true;
  const source = new CursorSource(async (after, size, signal) => {
    const asked = { statuses, after, page_size: size };
    if (knowsWhy) {
      try {
        const page = await api.get("/v1/pending", { ...asked, job_id: id, user_id: job.peek().user_id === me.peek()?.user_id ? "me" : "all" }, signal);
        return { rows: page.items, next: page.next_page ?? null };
      } catch (error) {
        if (/** @type {any} */ (error).status !== 404 || after !== null) throw error;
        knowsWhy = false; // the list across jobs is switched off here: this one is always there
      }
    }
    const page = await api.get(`/v1/jobs/${id}/items`, asked, signal);
    return { rows: page.items, next: page.next_page ?? null };
  });
  const open = () => statuses.reduce((sum, name) => sum + job.value.counts[name], 0);
  const seen = signal(open());
  const show = () => {
    seen.value = open();
    source.refresh();
  };
  const foot = h(
    "div",
    { class: "grid-foot" },
    h("span", { role: "status" }, () => `${count(open())} open · ${(source.version.value, count(source.loaded))} loaded`),
    h("span", null, () => (open() !== seen.value ? h("button", { type: "button", class: "link", on: { click: show } }, "The list has changed – show") : null)),
  );
  const grid = makeGrid({
    label: `Open items of ${job.peek().key}`,
    source,
    columns: [
      { label: "Item", width: "6.5rem", align: "right", show: (cell, row) => text(cell, count(row.seq + 1)) },
      { label: "Title", width: "minmax(12rem, 1.5fr)", show: (cell, row) => text(cell, title(row.input_summary)) },
      {
        label: "Status",
        width: "9rem",
        show(cell, row) {
          const shown = /** @type {HTMLElement | null} */ (cell.firstElementChild);
          if (shown) setStatus(shown, row.status);
          else cell.replaceChildren(status(row.status));
        },
      },
      { label: "Why it waits", width: "minmax(14rem, 2fr)", show: (cell, row) => text(cell, why(row, job.peek())) },
      { label: "Attempts", width: "5.5rem", align: "right", show: (cell, row) => text(cell, String(row.attempts)) },
      { label: "Locked by", width: "minmax(9rem, 1fr)", show: (cell, row) => text(cell, row.locked_by ?? "") },
      { label: "Updated", width: "11rem", show: (cell, row) => text(cell, moment(row.updated_at), wholeMoment(row.updated_at)) },
    ],
    keyOf: (row) => row.id,
    nameOf: (row) => `row ${count(row.seq + 1)}`,
    onOpen: (row) => openItem(job, row.seq, { changed: show, focusBack: () => grid.goTo(grid.active(), true) }),
    foot,
    whenEmpty: () => empty({ title: "Nothing waits", says: "Every row of this job that is asked for is settled." }),
  });
  return grid.element;
}

/** An input in a few words. @param {any} summary */
export function title(summary) {
  if (summary === null || typeof summary !== "object" || Array.isArray(summary)) return cellText(summary);
  return Object.values(summary).map(cellText).filter(Boolean).join(" · ");
}

/** @param {any} row @param {any} job */
export function why(row, job) {
  const said = row.why ?? (row.status === "processing" ? `in hand of worker ${row.locked_by}` : job.status === "paused" ? "paused" : row.due_at ? `waits for its retry at ${row.due_at}` : "waits for its turn");
  const time = /\d{4}-\d\d-\d\dT[\d:.+Z-]+/.exec(said)?.[0];
  const after = row.status === "retry_wait" && row.error?.code ? ` (after ${row.error.code})` : "";
  return (time ? said.replace(time, moment(time)) : said) + after;
}
