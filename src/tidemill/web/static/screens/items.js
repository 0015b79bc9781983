// @ts-check
/** The items of a job in a grid, filtered by status and error code, and the actions on the selected items. */
import { api } from "../core/api.js";
import { appendChildren, h } from "../core/dom.js";
import { formatNumber, pluralize } from "../core/format.js";
import { isLive } from "../core/live-updates.js";
import { remoteData } from "../core/remote-data.js";
import { addNavigationGuard, queryList, queryParam, setQuery } from "../core/router.js";
import { computed, effect, effectScope, onCleanup, signal, untracked } from "../core/signal.js";
import { stableOrder } from "../core/stable-order.js";
import { confirmDialog } from "../ui/dialog.js";
import { clearFiltersButton, searchFilter, selectFilter, statusToggles } from "../ui/filter-bar.js";
import { createGrid } from "../ui/grid.js";
import { icon } from "../ui/icons.js";
import { menuButton } from "../ui/menu.js";
import { emptyState } from "../ui/notices.js";
import { CursorRowSource, IndexedRowSource } from "../ui/row-source.js";
import { Selection } from "../ui/selection.js";
import { singleFlight } from "../ui/single-flight.js";
import { ITEM_STATUSES, OPEN_ITEM_STATUSES, isClosed } from "../ui/status.js";
import { showToast } from "../ui/toast.js";
import { errorColumns, leadingColumns, valueColumn } from "./item-columns.js";
import { openItemDrawer } from "./item-drawer.js";
import { countMatchingItems, exportJob, reprocessItems } from "./job-actions.js";
import { MAX_IDS, MAX_RANGES, cancelRows, countRows, countText, tooManyMessage } from "./selection-actions.js";

const MAX_COLUMNS = 24; // each column adds an element to every row
const DEFAULT_COLUMNS = 8;
const REFRESH_DELAY_MS = 2_000;
const SETTLED_STATUSES = ITEM_STATUSES.filter((one) => !OPEN_ITEM_STATUSES.includes(one));

/** @typedef {import("../core/signal.js").Signal<any>} JobSignal a job */

/** @param {JobSignal} job @param {() => void} changed called after items were requeued @param {string[]} [fixed] statuses that the user cannot change */
export function itemsView(job, changed, fixed) {
  const urlStatuses = queryList("statuses");
  const statuses = fixed ? signal(fixed) : computed(() => urlStatuses.value.filter((one) => ITEM_STATUSES.includes(one)));
  const causes = queryList("causes");
  const rowKey = queryParam("key");
  const chosenColumns = queryList("columns");
  const filters = computed(() => ({ statuses: causes.value.length ? ["failed"] : statuses.value, codes: causes.value, key: rowKey.value }));
  const filterText = computed(() => JSON.stringify([filters.value, chosenColumns.value]));
  const names = computed(() => JSON.stringify({ of: job.value.columns_of, names: (chosenColumns.value.length ? chosenColumns.value : job.value.columns.slice(0, DEFAULT_COLUMNS)).slice(0, MAX_COLUMNS) }));
  const box = h("div", { class: "screen" });
  if (!fixed) syncStatusesWithCauses(statuses, causes);
  let end = () => {};
  let activeRow = () => 0;
  effect(() => {
    void filterText.value;
    const selection = new Selection();
    /** @type {string | null} */
    let made = null;
    /** New columns wait while rows are selected, because they would discard the selection. */
    const shown = computed(() => (selection.version.value, selection.isEmpty ? names.value : (made ?? names.value)));
    effect(() => {
      const now = shown.value;
      if (now === made) return;
      const at = made === null ? 0 : activeRow();
      made = now;
      end();
      untracked(() => {
        const [list, over] = effectScope(() => listView(job, filters.value, changed, JSON.parse(now), { selection, hasNew: () => names.value !== now }));
        end = over;
        activeRow = list.active;
        box.replaceChildren(list.element);
        if (at > 0) list.goTo(at);
      });
    });
  });
  onCleanup(() => end());

  /** Offered statuses stay in place. Counts cover all rows, so they are hidden when a filter is set. */
  const offered = new Set();
  const options = () => {
    const isFiltered = rowKey.value !== "" || causes.value.length > 0;
    for (const value of ITEM_STATUSES) if (job.value.counts[value] || statuses.value.includes(value)) offered.add(value);
    return ITEM_STATUSES.filter((value) => offered.has(value)).map((value) => ({ value, count: isFiltered ? null : job.value.counts[value] }));
  };
  const inOrder = stableOrder((/** @type {[string, number]} */ one) => one[0]);
  const codes = computed(() => inOrder(Object.entries(job.value.errors).toSorted((a, b) => b[1] - a[1])).map(([value, n]) => ({ value, label: rowKey.value ? value : `${value} (${formatNumber(n)})` })));
  return h(
    "div",
    { class: "screen" },
    h(
      "div",
      { class: "filters" },
      fixed ? null : statusToggles("statuses", "Status", options),
      selectFilter("causes", "Error code", () => codes.value),
      searchFilter("key", "Input value, or its beginning such as AB*"),
      columnChoice(job, chosenColumns),
      fixed ? null : clearFiltersButton(["statuses", "causes", "key"]),
    ),
    box,
  );
}

/** Only failed items have an error code. Choosing a code selects the failed status; choosing another status removes the code. @param {import("../core/signal.js").Signal<string[]>} statuses @param {import("../core/signal.js").Signal<string[]>} causes */
function syncStatusesWithCauses(statuses, causes) {
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
  const shown = () => chosen.peek().length ? chosen.peek() : job.peek().columns.slice(0, DEFAULT_COLUMNS);
  return menuButton(
    "Columns",
    () =>
      job.peek().columns.slice(0, 60).map((/** @type {string} */ name) => ({
        label: `${shown().includes(name) ? "✓ " : ""}${name}`,
        run: () => {
          const now = shown().includes(name) ? shown().filter((/** @type {string} */ one) => one !== name) : [...shown(), name];
          setQuery({ columns: job.peek().columns.filter((/** @type {string} */ one) => now.includes(one)).slice(0, MAX_COLUMNS) });
        },
      })),
    { content: [icon("list"), "Columns"], class: "" },
  );
}

/**
 * @param {JobSignal} job @param {{statuses: string[], codes: string[], key: string}} filters @param {() => void} changed
 * @param {{of: string, names: string[]}} values the value columns @param {{selection: Selection, hasNew: () => boolean}} options
 */
function listView(job, filters, changed, values, { selection, hasNew }) {
  const { id } = job.peek();
  const path = `/v1/jobs/${id}/items`;
  const filter = { statuses: filters.statuses, error_codes: filters.codes, key: filters.key, inputs: true };
  const isUnfiltered = filters.statuses.length === 0 && !filters.key;
  const of = signal(values.of);
  const valueColumns = values.names.map((name) => valueColumn(name, of));
  const isFailures = filters.statuses.length === 1 && filters.statuses[0] === "failed"; // failed items have no values
  /** There are no counters by key, so the service counts them. */
  const counted = filters.key ? remoteData((signal) => countRows(job.peek(), filters, "export", signal)) : null;
  const matches = () => (counted ? (counted.data.value?.items ?? 0) : countMatchingItems(job.value, filters));
  const matchesText = () => (counted ? (counted.data.value ? countText(counted.data.value) : "…") : formatNumber(matches()));
  const source = isUnfiltered
    ? new IndexedRowSource(job.peek().counts.total, async (first, size, signal) => {
        const page = await api.getExact(path, { ...filter, seq: first, page_size: size }, signal);
        of.value = page.columns_of;
        return indexBySeq(page.items, first);
      })
    : new CursorRowSource(async (after, size, signal) => {
        const page = await api.getExact(path, { ...filter, after, page_size: size }, signal);
        of.value = page.columns_of;
        return { rows: page.items, next: page.next_page ?? null };
      });
  const shownMatches = signal(matches());
  /** @type {import("../ui/grid.js").Grid} */
  const grid = createGrid({
    label: `Items of ${job.peek().key}`,
    source,
    columns: [...leadingColumns(values.of), ...(isFailures ? [...errorColumns(), ...valueColumns] : [...valueColumns, ...errorColumns()])],
    keyOf: (row) => row.seq,
    nameOf: (row) => `row ${formatNumber(row.seq + 1)}`,
    selection,
    onOpen: (row) => openItemDrawer(job, row.seq, { changed: onItemChanged, focusBack: () => grid.focus() }),
    footer: createFooter(),
    emptyContent: () => emptyState({ title: isUnfiltered ? "No items" : "Nothing matches", text: isUnfiltered ? "This job has no rows yet." : "No items match these filters." }),
  });

  /** Shows the new state of a single requeued item in place. @param {any} item */
  function onItemChanged(item) {
    changed();
    counted?.reload();
    source.updateRow((one) => one.seq === item.seq, item);
  }

  function refreshAll() {
    changed();
    counted?.reload();
    source.refresh();
  }

  // The rows follow the job. While rows are selected nothing changes under the pointer; the refresh follows when the
  // selection is cleared.
  const isRefreshDue = signal(false);
  let isFirst = true;
  effect(() => {
    const { total } = job.value.counts;
    if (!(source instanceof IndexedRowSource)) return;
    source.resize(total);
    if (!isFirst) isRefreshDue.value = true;
    isFirst = false;
  });
  effect(() => {
    void selection.version.value;
    if (!isRefreshDue.value || !isLive.value || !selection.isEmpty) return;
    const timer = window.setTimeout(() => {
      isRefreshDue.value = false;
      source.refresh();
    }, REFRESH_DELAY_MS);
    onCleanup(() => window.clearTimeout(timer));
  });
  onCleanup(addNavigationGuard(async () => selection.isEmpty || (await confirmDiscard())));

  async function confirmDiscard() {
    const may = await confirmDialog({
      title: "Clear the selection?",
      content: [h("p", null, `${pluralize(selection.size(matches()), "row is", "rows are")} selected. Changing the filter or leaving the screen clears the selection.`)],
      actionLabel: "Clear",
      run: async () => selection.clear(),
    });
    return may;
  }

  function createFooter() {
    const n = () => (selection.version.value, selection.size(matches()));
    const box = h("div", { class: () => (n() ? "grid-foot is-chosen" : "grid-foot") });
    const loaded = () => (source.version.value, source.loaded);
    const statusText = () => {
      if (n()) return `${pluralize(n(), "row")} selected${selection.isAll ? ` of ${matchesText()} matching` : ""}; updates are paused${hasNew() ? ", new columns are available" : ""}`;
      if (isUnfiltered) return pluralize(matches(), "row");
      return `${matchesText()} matching · ${formatNumber(loaded())} loaded`;
    };
    const isStale = () => !isUnfiltered && !counted && matches() !== shownMatches.value;
    appendChildren(box, [
      h("span", { role: "status" }, statusText),
      h("button", { type: "button", class: "link", hidden: () => !isStale() || n() > 0, on: { click: () => ((shownMatches.value = matches()), source.refresh()) } }, "The list has changed – show changes"),
      h("button", { type: "button", class: "link", hidden: () => n() === 0 || selection.isAll || matches() <= n(), on: { click: () => selection.selectAll() } }, () => `Select all ${matchesText()} matching`),
      h("span", { class: "spring" }),
      goToRowForm(),
      h("span", { class: "row", hidden: () => n() === 0 }, actionButtons()),
    ]);
    return box;
  }

  function actionButtons() {
    const has = (/** @type {string[]} */ some) => filters.statuses.length === 0 || filters.statuses.some((one) => some.includes(one));
    const actionButton = (/** @type {string} */ label, /** @type {string} */ picture, /** @type {(what: import("./selection-actions.js").ItemSelection) => any} */ run, hidden = () => false) =>
      h("button", { type: "button", class: "small", hidden, on: { click: singleFlight(() => withSelection(run)) } }, icon(picture), label);
    const withSelection = (/** @type {(what: import("./selection-actions.js").ItemSelection) => any} */ run) => {
      const parts = selection.toKeysAndRanges(MAX_IDS, MAX_RANGES);
      if (parts === null) return showToast(tooManyMessage(selection), "bad");
      const ids = parts.keys.map((seq) => `${id}:${seq}`);
      return run(selection.isAll ? { ...filters, except: ids } : { ...filters, ids, ranges: parts.ranges });
    };
    const done = () => {
      selection.clear();
      refreshAll();
    };
    return [
      has(SETTLED_STATUSES) ? actionButton(isFailures ? "Retry …" : "Run again …", "retry", (what) => reprocessItems(job.peek(), { ...what, statuses: (filters.statuses.length ? filters.statuses : ITEM_STATUSES).filter((one) => SETTLED_STATUSES.includes(one)) }, done)) : null,
      actionButton("Export …", "export", (what) => exportJob(job.peek(), what)),
      has(["pending", "retry_wait"]) ? actionButton("Cancel …", "ban", (what) => cancelRows(job.peek(), what, done), () => isClosed(job.value.status)) : null,
      h("button", { type: "button", class: "small plain", on: { click: () => selection.clear() } }, "Clear"),
    ];
  }

  function goToRowForm() {
    if (!isUnfiltered) return null;
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

/** Puts items at their index, as the page may have gaps. @param {any[]} items @param {number} first */
function indexBySeq(items, first) {
  /** @type {any[]} */
  const rows = [];
  for (const item of items) rows[item.seq - first] = item;
  return rows;
}
