// @ts-check
/** The items of a job in a grid: any number of them, by status and cause, with what can be done to those selected. */
import { api } from "../core/api.js";
import { append, h } from "../core/dom.js";
import { count, counted } from "../core/format.js";
import { guardChanges, setQuery, word, words } from "../core/router.js";
import { computed, effect, onCleanup, scope as inScope, signal, untracked } from "../core/signal.js";
import { load } from "../core/load.js";
import { isLive } from "../core/sse.js";
import { steady } from "../core/steady.js";
import { confirmDialog } from "../ui/dialog.js";
import { empty } from "../ui/empty.js";
import { choice, clearFilters, searchField, statusToggles } from "../ui/filter-bar.js";
import { makeGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { press } from "../ui/press.js";
import { Selection } from "../ui/selection.js";
import { CursorSource, SeqSource } from "../ui/source.js";
import { ITEM_STATUSES, OPEN_ITEMS, isClosed } from "../ui/status.js";
import { toast } from "../ui/toast.js";
import { openItem } from "./item.js";
import { front, valueColumn, why } from "./item-columns.js";
import { exportJob, matching, reprocess } from "./job-acts.js";
import { IDS_MAX, RANGES_MAX, cancelRows, countRows, many, tooMany } from "./selection-acts.js";

const SHOWN_MAX = 24; // columns: each is an element in every row
const SHOWN_FIRST = 8;
const FOLLOWS_MS = 2_000;
const SETTLED = ITEM_STATUSES.filter((one) => !OPEN_ITEMS.includes(one));

/** @typedef {import("../core/signal.js").Signal<any>} JobSignal a job, whole */

/** @param {JobSignal} job @param {() => void} changed something was sent round again @param {string[]} [fixed] statuses that are not asked for */
export function itemsView(job, changed, fixed) {
  const said = words("statuses");
  const statuses = fixed ? signal(fixed) : computed(() => said.value.filter((one) => ITEM_STATUSES.includes(one)));
  const causes = words("causes");
  const rowKey = word("key");
  const hidden = words("columns");
  const asked = computed(() => ({ statuses: causes.value.length ? ["failed"] : statuses.value, codes: causes.value, key: rowKey.value }));
  const filter = computed(() => JSON.stringify([asked.value, hidden.value]));
  const names = computed(() => JSON.stringify({ of: job.value.columns_of, names: (hidden.value.length ? hidden.value : job.value.columns.slice(0, SHOWN_FIRST)).slice(0, SHOWN_MAX) }));
  const box = h("div", { class: "screen" });
  if (!fixed) causesAreOfFailures(statuses, causes);
  let end = () => {};
  let place = () => 0;
  effect(() => {
    filter.value;
    const selection = new Selection();
    /** @type {string | null} */
    let made = null;
    /** Columns that came while rows were selected wait: what is selected stays. */
    const shown = computed(() => (selection.version.value, selection.isEmpty ? names.value : (made ?? names.value)));
    effect(() => {
      const now = shown.value;
      if (now === made) return;
      const at = made === null ? 0 : place();
      made = now;
      end();
      untracked(() => {
        const [list, over] = inScope(() => listView(job, asked.value, changed, JSON.parse(now), { selection, hasNew: () => names.value !== now }));
        end = over;
        place = list.active;
        box.replaceChildren(list.element);
        if (at > 0) list.goTo(at);
      });
    });
  });
  onCleanup(() => end());

  /** Statuses that were offered stay where they are. The sums are of all rows: they do not stand beside some of them. */
  const offered = new Set();
  const options = () => {
    const isSome = rowKey.value !== "" || causes.value.length > 0;
    for (const value of ITEM_STATUSES) if (job.value.counts[value] || statuses.value.includes(value)) offered.add(value);
    return ITEM_STATUSES.filter((value) => offered.has(value)).map((value) => ({ value, n: isSome ? null : job.value.counts[value] }));
  };
  const inOrder = steady((/** @type {[string, number]} */ one) => one[0]);
  const codes = computed(() => inOrder(Object.entries(job.value.errors).sort((a, b) => b[1] - a[1])).map(([value, n]) => ({ value, said: rowKey.value ? value : `${value} (${count(n)})` })));
  return h(
    "div",
    { class: "screen" },
    h(
      "div",
      { class: "filters" },
      fixed ? null : statusToggles("statuses", "Status", options),
      choice("causes", "Cause", () => codes.value),
      searchField("key", "Key, or AB* for its beginning"),
      columnChoice(job, hidden),
      fixed ? null : clearFilters(["statuses", "causes", "key"]),
    ),
    box,
  );
}

/** Only failures have a cause: choosing one means them, and choosing another status means no cause. @param {import("../core/signal.js").Signal<string[]>} statuses @param {import("../core/signal.js").Signal<string[]>} causes */
function causesAreOfFailures(statuses, causes) {
  let before = "";
  effect(() => {
    const now = causes.value.join();
    const isFailures = statuses.value.length === 1 && statuses.value[0] === "failed";
    const isNew = now !== before;
    before = now;
    if (now === "" || isFailures) return;
    untracked(() => setQuery(isNew ? { statuses: ["failed"] } : { causes: null }, { replace: true }));
  });
}

/** @param {JobSignal} job @param {import("../core/signal.js").Signal<string[]>} chosen */
function columnChoice(job, chosen) {
  const shown = () => chosen.peek().length ? chosen.peek() : job.peek().columns.slice(0, SHOWN_FIRST);
  return menuButton(
    "Columns",
    () =>
      job.peek().columns.slice(0, 60).map((/** @type {string} */ name) => ({
        label: `${shown().includes(name) ? "✓ " : ""}${name}`,
        run: () => {
          const now = shown().includes(name) ? shown().filter((/** @type {string} */ one) => one !== name) : [...shown(), name];
          setQuery({ columns: job.peek().columns.filter((/** @type {string} */ one) => now.includes(one)).slice(0, SHOWN_MAX) });
        },
      })),
    { content: [icon("list"), "Columns"], class: "" },
  );
}

/**
 * @param {JobSignal} job @param {{statuses: string[], codes: string[], key: string}} asked @param {() => void} changed
 * @param {{of: string, names: string[]}} values the columns @param {{selection: Selection, hasNew: () => boolean}} how
 */
function listView(job, asked, changed, values, { selection, hasNew }) {
  const { id } = job.peek();
  const path = `/v1/jobs/${id}/items`;
  const filter = { statuses: asked.statuses, error_codes: asked.codes, key: asked.key, inputs: true };
  const isWhole = asked.statuses.length === 0 && !asked.key;
  const of = signal(values.of);
  const valueColumns = values.names.map((name) => valueColumn(name, of));
  const isFailures = asked.statuses.length === 1 && asked.statuses[0] === "failed"; // which have no values to begin with
  /** By a key nobody has sums: the service looks for them. */
  const found = asked.key ? load((signal) => countRows(job.peek(), asked, "export", signal)) : null;
  const matches = () => (found ? (found.data.value?.items ?? 0) : matching(job.value, asked));
  const told = () => (found ? (found.data.value ? many(found.data.value) : "…") : count(matches()));
  const source = isWhole
    ? new SeqSource(job.peek().counts.total, async (first, size, signal) => {
        const page = await api.rows(path, { ...filter, seq: first, page_size: size }, signal);
        of.value = page.columns_of;
        return byPlace(page.items, first);
      })
    : new CursorSource(async (after, size, signal) => {
        const page = await api.rows(path, { ...filter, after, page_size: size }, signal);
        of.value = page.columns_of;
        return { rows: page.items, next: page.next_page ?? null };
      });
  const seen = signal(matches());
  /** @type {import("../ui/grid.js").Grid} */
  const grid = makeGrid({
    label: `Items of ${job.peek().key}`,
    source,
    columns: [...front(values.of), ...(isFailures ? [...why(), ...valueColumns] : [...valueColumns, ...why()])],
    keyOf: (row) => row.seq,
    nameOf: (row) => `row ${count(row.seq + 1)}`,
    selection,
    onOpen: (row) => openItem(job, row.seq, { changed: sent, focusBack: () => grid.focus() }),
    foot: foot(),
    whenEmpty: () => empty({ title: isWhole ? "No items" : "Nothing matches", says: isWhole ? "This job has no rows, or none that were read so far." : "No item of this job is so now." }),
  });

  /** One was sent round again, alone: shown where it stands, and nothing else moves. @param {any} item */
  function sent(item) {
    changed();
    found?.again();
    source.patch((one) => one.seq === item.seq, item);
  }

  function again() {
    changed();
    found?.again();
    source.refresh();
  }

  // Rows that are looked at follow the job; while some are selected nothing changes under the pointer, and what has changed
  // meanwhile is shown when they are let go.
  const isOwed = signal(false);
  let isFirst = true;
  effect(() => {
    const { total } = job.value.counts;
    if (!(source instanceof SeqSource)) return;
    source.resize(total);
    if (!isFirst) isOwed.value = true;
    isFirst = false;
  });
  effect(() => {
    selection.version.value;
    if (!isOwed.value || !isLive.value || !selection.isEmpty) return;
    const timer = window.setTimeout(() => {
      isOwed.value = false;
      source.refresh();
    }, FOLLOWS_MS);
    onCleanup(() => window.clearTimeout(timer));
  });
  onCleanup(guardChanges(async () => selection.isEmpty || (await letGo())));

  async function letGo() {
    const may = await confirmDialog({
      title: "Let go of the selection?",
      says: [h("p", null, `${counted(selection.size(matches()), "row is", "rows are")} selected. Another filter or screen forgets that.`)],
      act: "Let go",
      run: async () => selection.clear(),
    });
    return may;
  }

  function foot() {
    const n = () => (selection.version.value, selection.size(matches()));
    const box = h("div", { class: () => (n() ? "grid-foot is-chosen" : "grid-foot") });
    const loaded = () => (source.version.value, source.loaded);
    const says = () => {
      if (n()) return `${counted(n(), "row")} selected${selection.isAll ? ` of ${told()} matching` : ""}; rows are not updated meanwhile${hasNew() ? ", and new columns wait" : ""}`;
      if (isWhole) return counted(matches(), "row");
      return `${told()} matching · ${count(loaded())} loaded`;
    };
    const isStale = () => !isWhole && !found && matches() !== seen.value;
    append(box, [
      h("span", { role: "status" }, says),
      h("button", { type: "button", class: "link", hidden: () => !isStale() || n() > 0, on: { click: () => ((seen.value = matches()), source.refresh()) } }, "The list has changed – show"),
      h("button", { type: "button", class: "link", hidden: () => n() === 0 || selection.isAll || matches() <= n(), on: { click: () => selection.all() } }, () => `Select all ${told()} matching`),
      h("span", { class: "spring" }),
      goTo(),
      h("span", { class: "row", hidden: () => n() === 0 }, acts()),
    ]);
    return box;
  }

  function acts() {
    const has = (/** @type {string[]} */ some) => asked.statuses.length === 0 || asked.statuses.some((one) => some.includes(one));
    const act = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {(what: import("./selection-acts.js").Chosen) => any} */ run, hidden = () => false) =>
      h("button", { type: "button", class: "small", hidden, on: { click: press(() => unlessTooMany(run)) } }, icon(picture), label);
    const unlessTooMany = (/** @type {(what: import("./selection-acts.js").Chosen) => any} */ run) => {
      const parts = selection.parts(IDS_MAX, RANGES_MAX);
      if (parts === null) return toast(tooMany(selection), "bad");
      const ids = parts.keys.map((seq) => `${id}:${seq}`);
      return run(selection.isAll ? { ...asked, except: ids } : { ...asked, ids, ranges: parts.ranges });
    };
    const done = () => {
      selection.clear();
      again();
    };
    return [
      has(SETTLED) ? act("Reprocess …", "retry", (what) => reprocess(job.peek(), { ...what, statuses: (asked.statuses.length ? asked.statuses : ITEM_STATUSES).filter((one) => SETTLED.includes(one)) }, done)) : null,
      act("Export …", "down", (what) => exportJob(job.peek(), what)),
      has(["pending", "retry_wait"]) ? act("Cancel …", "ban", (what) => cancelRows(job.peek(), what, done), () => isClosed(job.value.status)) : null,
      h("button", { type: "button", class: "small plain", on: { click: () => selection.clear() } }, "Clear"),
    ];
  }

  function goTo() {
    if (!isWhole) return null;
    const input = /** @type {HTMLInputElement} */ (h("input", { type: "text", inputmode: "numeric", placeholder: "Go to row", "aria-label": "Go to row", size: "9" }));
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      const row = Number(input.value.replace(/[^0-9]/g, ""));
      if (row > 0) grid.goTo(row - 1, true);
    };
    return h("form", { on: { submit } }, input);
  }

  return { element: grid.element, active: grid.active, goTo: grid.goTo };
}

/** Rows at their places: an answer may be short. @param {any[]} items @param {number} first */
function byPlace(items, first) {
  /** @type {any[]} */
  const rows = [];
  for (const item of items) rows[item.seq - first] = item;
  return rows;
}
