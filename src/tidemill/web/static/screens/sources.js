// @ts-check
/** The watches screen: watches that create jobs from files, their scans and files. */
import { api, isNotFound } from "../core/api.js";
import { h, keyedList } from "../core/dom.js";
import { formatAge, formatBytes, formatDateTime, formatDuration, formatNumber, formatTime, humanize, pluralize } from "../core/format.js";
import { stringify } from "../core/json.js";
import { everyWhileLive, liveClock } from "../core/polling.js";
import { remoteData } from "../core/remote-data.js";
import { href, queryParam } from "../core/router.js";
import { batch, computed, effect, signal } from "../core/signal.js";
import { toAbsoluteUrl } from "../core/url.js";
import { errorBanners } from "../ui/error-banner.js";
import { selectFilter } from "../ui/filter-bar.js";
import { icon } from "../ui/icons.js";
import { loadMoreButton } from "../ui/load-more.js";
import { emptyState, loadingNotice } from "../ui/notices.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { withUpdatePill } from "../ui/update-pill.js";

const RELOAD_MS = 5_000;
/** @type {Record<string, [tone: string, icon: string]>} */
const FILE_STATE_STYLES = { seen: ["wait", "clock"], taken: ["run", "read"], submitted: ["run", "run"], persisted: ["ok", "check"], processed: ["ok", "check"], rejected: ["bad", "cross"], failed: ["bad", "cross"], refused: ["warn", "ban"], held: ["warn", "alert"], gone: ["warn", "help"] };

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} options */
export function screen({ params }) {
  const sources = remoteData((signal) => fetchSources(signal));
  everyWhileLive(() => sources.reloadSoon(0), RELOAD_MS);
  const chosen = computed(() => params.value.source ?? "");
  const at = liveClock(5_000);
  const isScanning = signal("");
  const isKnown = computed(() => sources.data.value !== null);
  const isThere = computed(() => Boolean(sources.data.value?.length));

  /** @param {string | null} name @param {boolean} [again] */
  async function scan(name, again = false) {
    isScanning.value = name ?? "*";
    const done = await toastOnError(() => api.post("/v1/ingestion/scan", name === null ? { again } : { name, again }));
    isScanning.value = "";
    if (!done) return;
    for (const one of done.scans) showToast(`${one.name}: ${pluralize(one.found, "file")} found, ${pluralize(one.submitted, "job")} created${one.problem ? `. ${one.problem}` : ""}`, one.problem ? "bad" : "ok");
    await sources.reload();
  }

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Watches"), h("button", { type: "button", hidden: () => !isThere.value, disabled: () => isScanning.value !== "", on: { click: () => scan(null) } }, icon("search"), "Scan all now")),
    errorBanners([sources]),
    () => {
      if (isKnown.value) return isThere.value ? null : emptyList();
      return sources.error.value ? null : loadingNotice();
    },
    watchesTable(),
    () => (chosen.value && isThere.value ? filesSection(chosen.value) : null),
  );

  function watchesTable() {
    const body = h("tbody");
    keyedList(body, () => sources.data.value ?? [], (one) => one.name, watchRow);
    const heads = ["Watch", "Location", "Creates", "Interval", "Last scan", "Found", "Files", ""];
    return h(
      "div",
      { class: "table-box", hidden: () => !sources.data.value?.length },
      h(
        "table",
        { class: "cards", "aria-label": "Watches" },
        h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Actions"))))),
        body,
      ),
    );
  }

  /** @param {import("../core/signal.js").Signal<any>} watch */
  function watchRow(watch) {
    const { name, scheme, source, pattern, task, every_s } = watch.peek();
    const last = () => (watch.value.scanning ? "scanning now" : watch.value.last_scan_at ? formatAge(watch.value.last_scan_at, at.value) : "never");
    return h(
      "tr",
      { "aria-current": () => (chosen.value === name ? "true" : null) },
      h("th", { scope: "row" }, h("a", { href: href(`/sources/${name}`) }, name), () => (watch.value.problem ? h("div", { class: "fault" }, watch.value.problem) : null)),
      h("td", { data: { label: "Location" } }, h("span", { class: "chip" }, scheme), " ", h("span", { class: "mono small" }, source), h("div", { class: "muted small" }, pattern.join(", "))),
      h("td", { data: { label: "Creates" } }, task.resource_type ? `import into ${task.resource_type}` : task.kind),
      h("td", { class: "nowrap", data: { label: "Interval" } }, every_s === null ? "manual" : formatDuration(every_s)),
      h("td", { class: "nowrap", data: { label: "Last scan" }, title: () => formatDateTime(watch.value.last_scan_at) }, last, () => (watch.value.next_scan_at ? h("div", { class: "muted small" }, `next ${formatTime(watch.value.next_scan_at)}`) : null)),
      h("td", { class: "number", data: { label: "Found" } }, () => `${formatNumber(watch.value.found)} found, ${formatNumber(watch.value.submitted)} new`),
      h("td", { data: { label: "Files" } }, () => Object.entries(watch.value.files).map(([state, n]) => [h("span", { class: "chip" }, `${humanize(state)} ${formatNumber(/** @type {number} */ (n))}`), " "])),
      h("td", { class: "right" }, h("button", { type: "button", class: "small", disabled: () => isScanning.value !== "", on: { click: () => scan(name) } }, icon("search"), () => (isScanning.value === name ? "Scanning …" : "Scan now"))),
    );
  }

  /** @param {string} name */
  function filesSection(name) {
    const state = queryParam("state");
    const rows = signal(/** @type {any[]} */ ([]));
    const next = signal(/** @type {string | null} */ (null));
    const fresh = signal(0);
    let [shownState, wantsNew] = ["", false];
    const path = `/v1/sources/${encodeURIComponent(name)}/files`;
    const first = remoteData((signal) => api.get(path, { state: state.value, page_size: 100 }, signal));
    effect(() => {
      const page = first.data.value;
      if (page === null) return;
      const requestedState = state.peek();
      if (requestedState !== shownState || wantsNew || rows.peek().length === 0) {
        [shownState, wantsNew] = [requestedState, false];
        batch(() => {
          rows.value = page.files;
          next.value = page.next_page ?? null;
          fresh.value = 0;
        });
        return;
      }
      // Changed files update in place; new files wait behind the update pill.
      const now = new Map(page.files.map((/** @type {any} */ one) => [one.path, one]));
      const known = new Set(rows.peek().map((one) => one.path));
      batch(() => {
        rows.value = rows.peek().map((one) => now.get(one.path) ?? one);
        fresh.value = page.files.filter((/** @type {any} */ one) => !known.has(one.path)).length;
      });
    });
    effect(() => {
      if (sources.loadedAt.value && rows.peek().length <= 100) first.reloadSoon(RELOAD_MS);
    });
    const more = loadMoreButton(
      next,
      () => state.value,
      // Append to the rows the page was requested for, as a newer first page has another end.
      async (after, signal) => ({ before: rows.peek(), page: await api.get(path, { state: state.peek(), page_size: 100, after }, signal) }),
      ({ before, page }) =>
        batch(() => {
          rows.value = [...before, ...page.files];
          next.value = page.next_page ?? null;
        }),
    );
    const body = keyedList(h("tbody"), () => rows.value, (file) => stringify(file), (file) => fileRow(file.peek(), decide));
    /** @param {any} file @param {"accept" | "reject"} verb */
    const decide = (file, verb) =>
      toastOnError(async () => {
        await api.post(`${path}/${file.id}/${verb}`);
        await scan(name);
        await first.reload();
      });
    const states = () => Object.keys(sources.data.value?.find((/** @type {any} */ one) => one.name === name)?.files ?? {}).map((value) => ({ value, label: humanize(value) }));
    const heads = ["File", "State", "Reason", "Job", "Size", "First seen", "Updated"];
    return h(
      "section",
      { class: "stack" },
      h("div", { class: "row between" }, h("h2", null, `Files of ${name}`), h("div", { class: "row" }, selectFilter("state", "State", states), h("button", { type: "button", class: "small", on: { click: () => scan(name, true) } }, icon("retry"), "Retry failed files"))),
      errorBanners([first], isNotFound),
      h("p", { class: "notice", hidden: () => !isNotFound(first.error.value) }, "Watch not found. It may belong to another user or have been removed from the configuration."),
      withUpdatePill(
        () => (fresh.value ? `${formatNumber(fresh.value)} new – show` : ""),
        () => ((wantsNew = true), first.reload()),
        h("div", { class: "table-box", hidden: () => rows.value.length === 0 }, h("table", { "aria-label": `Files of ${name}` }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col" }, label)))), body)),
        () => (first.data.value && rows.value.length === 0 ? h("p", { class: "muted" }, "No files found yet.") : null),
      ),
      more,
    );
  }
}

/** @param {any} file @param {(file: any, verb: "accept" | "reject") => void} decide */
function fileRow(file, decide) {
  const decisions = file.state === "held" ? h("div", { class: "row" }, h("button", { type: "button", class: "small", "aria-label": `Accept ${file.path}`, on: { click: () => decide(file, "accept") } }, "Accept"), h("button", { type: "button", class: "small danger", "aria-label": `Reject ${file.path}`, on: { click: () => decide(file, "reject") } }, "Reject")) : null;
  const [tone, picture] = FILE_STATE_STYLES[file.state] ?? ["wait", "dash"];
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "mono small" }, file.path, file.moved_to ? h("div", { class: "muted" }, `moved to ${file.moved_to}`) : null),
    h("td", null, h("span", { class: "status", data: { tone } }, icon(picture), humanize(file.state))),
    h("td", null, file.status ?? "–", file.tries ? h("div", { class: "muted small" }, `retried ${pluralize(file.tries, "time")}`) : null, decisions),
    h("td", null, file.job_id ? h("a", { class: "mono", href: href(`/jobs/${file.job_key ?? file.job_id}`) }, file.job_key ?? file.job_id) : "–"),
    h("td", { class: "nowrap number" }, formatBytes(file.size)),
    h("td", { class: "nowrap", title: formatDateTime(file.seen_at) }, formatTime(file.seen_at)),
    h("td", { class: "nowrap", title: formatDateTime(file.updated_at) }, formatTime(file.updated_at)),
  );
}

/** A service without watches has no such route. @param {AbortSignal} signal @returns {Promise<any[]>} */
async function fetchSources(signal) {
  try {
    return (await api.get("/v1/sources", {}, signal)).sources;
  } catch (error) {
    if (isNotFound(error)) return [];
    throw error;
  }
}

const WATCH_EXAMPLE = `[watches.nightly]
source = "inbox"
pattern = "*.csv"
every = "1m"
job = { kind = "price.lookup" }`;

function emptyList() {
  return emptyState({
    title: "No watches",
    text: "A watch scans a folder, bucket or server at an interval and creates a job for every complete file. Watches are declared in tidemill.toml.",
    commands: [
      ["In tidemill.toml", WATCH_EXAMPLE],
      ["Scan now with curl", `curl -X POST ${toAbsoluteUrl("/v1/ingestion/scan")} -H "Authorization: Bearer $KEY" --json '{}'`],
    ],
  });
}
