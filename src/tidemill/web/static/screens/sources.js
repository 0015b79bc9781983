// @ts-check
/** Sources: watches that make jobs of files, their last scans, and what became of each file. */
import { api, isMissing } from "../core/api.js";
import { each, h } from "../core/dom.js";
import { ago, bytes, count, counted, duration, moment, wholeMoment, words } from "../core/format.js";
import { stringify } from "../core/json.js";
import { every, load, ticking } from "../core/load.js";
import { wholeAddress } from "../core/place.js";
import { href, word } from "../core/router.js";
import { batch, computed, effect, signal } from "../core/signal.js";
import { empty, waiting } from "../ui/empty.js";
import { choice } from "../ui/filter-bar.js";
import { icon } from "../ui/icons.js";
import { moreButton } from "../ui/more.js";
import { underPill } from "../ui/pill.js";
import { tellIfFails, toast } from "../ui/toast.js";
import { trouble } from "../ui/trouble.js";

const EVERY_MS = 5_000;
/** @type {Record<string, [tone: string, icon: string]>} */
const LOOKS = { seen: ["wait", "clock"], taken: ["run", "down"], submitted: ["run", "run"], persisted: ["ok", "check"], processed: ["ok", "check"], rejected: ["bad", "cross"], failed: ["bad", "cross"], refused: ["warn", "ban"], gone: ["warn", "help"] };

/** @param {{params: import("../core/signal.js").Signal<Record<string, string>>}} asked */
export function screen({ params }) {
  const sources = load((signal) => askSources(signal));
  every(() => sources.soon(0), EVERY_MS);
  const chosen = computed(() => params.value.source ?? "");
  const at = ticking(5_000);
  const isScanning = signal("");
  const isKnown = computed(() => sources.data.value !== null);
  const isThere = computed(() => Boolean(sources.data.value?.length));

  /** @param {string | null} name @param {boolean} [again] */
  async function scan(name, again = false) {
    isScanning.value = name ?? "*";
    const done = await tellIfFails(() => api.post("/v1/ingestion/scan", name === null ? { again } : { name, again }));
    isScanning.value = "";
    if (!done) return;
    for (const one of done.scans) toast(`${one.name}: ${counted(one.found, "file")} found, ${counted(one.submitted, "job")} made${one.problem ? `. ${one.problem}` : ""}`, one.problem ? "bad" : "ok");
    await sources.again();
  }

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "head" }, h("h1", null, "Sources"), h("button", { type: "button", hidden: () => !isThere.value, disabled: () => isScanning.value !== "", on: { click: () => scan(null) } }, icon("search"), "Scan all now")),
    trouble([sources]),
    () => {
      if (isKnown.value) return isThere.value ? null : nothing();
      return sources.error.value ? null : waiting();
    },
    table(),
    () => (chosen.value && isThere.value ? files(chosen.value) : null),
  );

  function table() {
    const body = h("tbody");
    each(body, () => sources.data.value ?? [], (one) => one.name, line);
    const heads = ["Watch", "Where", "Makes", "Every", "Last scan", "Found", "Files", ""];
    return h(
      "div",
      { class: "table-box", hidden: () => !sources.data.value?.length },
      h(
        "table",
        { "aria-label": "Watches" },
        h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Actions"))))),
        body,
      ),
    );
  }

  /** @param {import("../core/signal.js").Signal<any>} watch */
  function line(watch) {
    const { name, scheme, source, pattern, task, every_s } = watch.peek();
    const last = () => (watch.value.scanning ? "scanning now" : watch.value.last_scan_at ? ago(watch.value.last_scan_at, at.value) : "never");
    return h(
      "tr",
      { "aria-current": () => (chosen.value === name ? "true" : null) },
      h("th", { scope: "row" }, h("a", { href: href(`/sources/${name}`) }, name), () => (watch.value.problem ? h("div", { class: "fault" }, watch.value.problem) : null)),
      h("td", null, h("span", { class: "chip" }, scheme), " ", h("span", { class: "mono small" }, source), h("div", { class: "muted small" }, pattern.join(", "))),
      h("td", null, task.resource_type ? `import into ${task.resource_type}` : task.kind),
      h("td", { class: "nowrap" }, every_s === null ? "when asked" : duration(every_s)),
      h("td", { class: "nowrap", title: () => wholeMoment(watch.value.last_scan_at) }, last, () => (watch.value.next_scan_at ? h("div", { class: "muted small" }, `next ${moment(watch.value.next_scan_at)}`) : null)),
      h("td", { class: "number" }, () => `${count(watch.value.found)} found, ${count(watch.value.submitted)} new`),
      h("td", null, () => Object.entries(watch.value.files).map(([state, n]) => [h("span", { class: "chip" }, `${words(state)} ${count(/** @type {number} */ (n))}`), " "])),
      h("td", { class: "right" }, h("button", { type: "button", class: "small", disabled: () => isScanning.value !== "", on: { click: () => scan(name) } }, icon("search"), () => (isScanning.value === name ? "Scanning …" : "Scan now"))),
    );
  }

  /** @param {string} name */
  function files(name) {
    const state = word("state");
    const rows = signal(/** @type {any[]} */ ([]));
    const next = signal(/** @type {string | null} */ (null));
    const fresh = signal(0);
    let [shownState, wantsNew] = ["", false];
    const path = `/v1/sources/${encodeURIComponent(name)}/files`;
    const first = load((signal) => api.get(path, { state: state.value, page_size: 100 }, signal));
    effect(() => {
      const page = first.data.value;
      if (page === null) return;
      const asked = state.peek();
      if (asked !== shownState || wantsNew || rows.peek().length === 0) {
        [shownState, wantsNew] = [asked, false];
        batch(() => {
          rows.value = page.files;
          next.value = page.next_page ?? null;
          fresh.value = 0;
        });
        return;
      }
      // Files that changed are told of where they stand; those that would come on top wait until they are asked for.
      const now = new Map(page.files.map((/** @type {any} */ one) => [one.path, one]));
      const known = new Set(rows.peek().map((one) => one.path));
      batch(() => {
        rows.value = rows.peek().map((one) => now.get(one.path) ?? one);
        fresh.value = page.files.filter((/** @type {any} */ one) => !known.has(one.path)).length;
      });
    });
    effect(() => {
      if (sources.at.value && rows.peek().length <= 100) first.soon(EVERY_MS);
    });
    const more = moreButton(
      next,
      () => state.value,
      // Below the rows that it was asked of: a newer first page that comes meanwhile has another end.
      async (after, signal) => ({ before: rows.peek(), page: await api.get(path, { state: state.peek(), page_size: 100, after }, signal) }),
      ({ before, page }) =>
        batch(() => {
          rows.value = [...before, ...page.files];
          next.value = page.next_page ?? null;
        }),
    );
    const body = each(h("tbody"), () => rows.value, (file) => stringify(file), (file) => fileRow(file.peek()));
    const states = () => Object.keys(sources.data.value?.find((/** @type {any} */ one) => one.name === name)?.files ?? {}).map((value) => ({ value, said: words(value) }));
    const heads = ["File", "State", "Why", "Job", "Size", "First seen", "Changed"];
    return h(
      "section",
      { class: "stack" },
      h("div", { class: "row between" }, h("h2", null, `Files of ${name}`), h("div", { class: "row" }, choice("state", "State", states), h("button", { type: "button", class: "small", on: { click: () => scan(name, true) } }, icon("retry"), "Try failed files again"))),
      trouble([first], isMissing),
      h("p", { class: "notice", hidden: () => !isMissing(first.error.value) }, "There is no such watch: it may belong to somebody else, or not be declared any more."),
      underPill(
        () => (fresh.value ? `${count(fresh.value)} new – show` : ""),
        () => ((wantsNew = true), first.again()),
        h("div", { class: "table-box", hidden: () => rows.value.length === 0 }, h("table", { "aria-label": `Files of ${name}` }, h("thead", null, h("tr", null, heads.map((label) => h("th", { scope: "col" }, label)))), body)),
        () => (first.data.value && rows.value.length === 0 ? h("p", { class: "muted" }, "No file of it was seen yet.") : null),
      ),
      more,
    );
  }
}

/** @param {any} file */
function fileRow(file) {
  const [tone, picture] = LOOKS[file.state] ?? ["wait", "dash"];
  return h(
    "tr",
    null,
    h("th", { scope: "row", class: "mono small" }, file.path, file.moved_to ? h("div", { class: "muted" }, `now ${file.moved_to}`) : null),
    h("td", null, h("span", { class: "status", data: { tone } }, icon(picture), words(file.state))),
    h("td", null, file.status ?? "–", file.tries ? h("div", { class: "muted small" }, `tried again ${counted(file.tries, "time")}`) : null),
    h("td", null, file.job_id ? h("a", { class: "mono", href: href(`/jobs/${file.job_key ?? file.job_id}`) }, file.job_key ?? file.job_id) : "–"),
    h("td", { class: "nowrap number" }, bytes(file.size)),
    h("td", { class: "nowrap", title: wholeMoment(file.seen_at) }, moment(file.seen_at)),
    h("td", { class: "nowrap", title: wholeMoment(file.updated_at) }, moment(file.updated_at)),
  );
}

/** A service that knows no watches has none. @param {AbortSignal} signal @returns {Promise<any[]>} */
async function askSources(signal) {
  try {
    return (await api.get("/v1/sources", {}, signal)).sources;
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
}

const EXAMPLE = `[watches.nightly]
source = "inbox"
pattern = "*.csv"
every = "1m"
job = { kind = "price.lookup" }`;

function nothing() {
  return empty({
    title: "No watches",
    says: "A watch looks at a folder, a bucket or a server now and then, and makes a job of every file that is whole. Watches are declared in the service's file.",
    recipes: [
      ["In tidemill.toml", EXAMPLE],
      ["Look now, with curl", `curl -X POST ${wholeAddress("/v1/ingestion/scan")} -H "Authorization: Bearer $KEY" --json '{}'`],
    ],
  });
}
