// @ts-check
/** Remembered column mappings: the notice in the columns step of an import, and the list of all mappings. */
import { api, currentUser } from "../core/api.js";
import { h } from "../core/dom.js";
import { formatDateTime, formatNumber, formatTime, pluralize } from "../core/format.js";
import { remoteData } from "../core/remote-data.js";
import { href, query, queryParam, setQuery } from "../core/router.js";
import { confirmDialog } from "../ui/dialog.js";
import { icon } from "../ui/icons.js";
import { emptyState, errorNotice, loadingNotice } from "../ui/notices.js";
import { showToast, toastOnError } from "../ui/toast.js";
import { mappingFromUrl, setMapping } from "./import-draft.js";

const SHOWN_COLUMNS = 6;

/** Which earlier import completed the options, and how its columns differ. @param {ReturnType<typeof import("./import-draft.js").previewFile>} previewed */
export function rememberedNotice(previewed) {
  const memory = queryParam("memory");
  const use = (/** @type {string | null} */ value) => setQuery({ memory: value }, { replace: true });
  return h("div", null, () => {
    if (memory.value === "false") return h("p", { class: "notice", data: { tone: "plain" } }, "Earlier imports are ignored. ", h("button", { type: "button", class: "small", on: { click: () => use(null) } }, "Use them"));
    const found = previewed.preview.value?.remembered;
    return found ? differences(found, () => use("false"), previewed.again) : null;
  });
}

/** @param {any} found @param {() => void} ignore @param {() => void} reload */
function differences(found, ignore, reload) {
  const renamed = new Map(found.renamed.map((/** @type {any} */ one) => [one.column, one]));
  const map = (/** @type {any} */ one) => setMapping({ ...mappingFromUrl(query.peek()), [one.column]: one.field });
  const newColumn = (/** @type {string} */ name) => {
    const one = renamed.get(name);
    if (!one) return h("li", null, `New: ${name}`);
    return h("li", null, `New: ${name}. It may be the new name of ${one.before} (${one.reason}). `, h("button", { type: "button", class: "small", on: { click: () => map(one) } }, `Map ${name} to ${one.field}`));
  };
  const share = () =>
    toastOnError(async () => {
      await api.patch(`/v1/import-mappings/${found.id}`, { shared: !found.shared });
      reload();
    });
  const mayChange = found.owner === currentUser.value?.name || currentUser.value?.role === "admin";
  return h(
    "div",
    { class: "notice", role: "status", "aria-label": "Earlier import", data: { tone: found.exact ? "plain" : "warn" } },
    h("p", null, `${found.exact ? "The columns are mapped" : "The known columns are mapped"} as in import `, h("a", { href: href(`/imports/${found.job_key}`) }, found.job_key), ` of ${formatDateTime(found.used_at)}${found.shared ? `, shared by ${found.owner}` : ""}.`),
    found.exact ? null : h("ul", null, found.new.map(newColumn), found.missing.map((/** @type {string} */ name) => h("li", null, `Missing: ${name}`))),
    h("div", { class: "row" }, h("button", { type: "button", class: "small", on: { click: ignore } }, "Ignore the earlier import"), mayChange ? h("button", { type: "button", class: "small", on: { click: share } }, found.shared ? "Stop sharing this mapping" : "Share this mapping") : null),
  );
}

export function screen() {
  const mappings = remoteData((signal) => api.get("/v1/import-mappings", { page_size: 500 }, signal));
  const change = (/** @type {any} */ one) =>
    toastOnError(async () => {
      await api.patch(`/v1/import-mappings/${one.id}`, { shared: !one.shared });
      await mappings.reload();
    });
  const forget = async (/** @type {any} */ one) => {
    const isDone = await confirmDialog({
      title: "Forget this mapping?",
      content: [h("p", null, `Imports of files with these ${pluralize(one.columns.length, "column")} into ${one.resource} no longer propose it.`)],
      actionLabel: "Forget",
      isDanger: true,
      run: () => api.delete(`/v1/import-mappings/${one.id}`),
    });
    if (!isDone) return;
    showToast("Mapping forgotten", "ok");
    await mappings.reload();
  };
  /** @param {any} one */
  const row = (one) => {
    const mayChange = one.owner === currentUser.value?.name || currentUser.value?.role === "admin";
    const rest = one.columns.length - SHOWN_COLUMNS;
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, one.resource),
      h("td", { data: { label: "Columns" } }, one.columns.slice(0, SHOWN_COLUMNS).join(", "), rest > 0 ? ` and ${formatNumber(rest)} more` : ""),
      h("td", { data: { label: "Owner" } }, one.owner, one.shared ? h("span", { class: "chip" }, "shared") : null),
      h("td", { class: "right", data: { label: "Imports" } }, formatNumber(one.uses)),
      h("td", { class: "nowrap", data: { label: "Last import" }, title: formatDateTime(one.used_at) }, h("a", { href: href(`/imports/${one.job_key}`), class: "mono" }, one.job_key), ` ${formatTime(one.used_at)}`),
      h("td", { class: "right nowrap" }, mayChange ? [h("button", { type: "button", class: "small", on: { click: () => change(one) } }, one.shared ? "Stop sharing" : "Share"), " ", h("button", { type: "button", class: "small danger", on: { click: () => forget(one) } }, "Forget …")] : null),
    );
  };
  const table = () => h("div", { class: "table-box" }, h("table", { class: "cards", "aria-label": "Remembered mappings" }, h("thead", null, h("tr", null, ["Table", "Columns", "Owner", "Imports", "Last import", ""].map((label) => h("th", { scope: "col" }, label || h("span", { class: "unseen" }, "Actions"))))), h("tbody", null, mappings.data.value.mappings.map(row))));
  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/imports") }, "Imports"), " / remembered mappings"),
    h("div", { class: "head" }, h("h1", null, "Remembered mappings"), h("a", { class: "button main-act", href: href("/imports/new") }, icon("plus"), "Import a file")),
    () => (mappings.error.value ? errorNotice(mappings.error.value, mappings.reload) : null),
    () => (mappings.data.value === null ? (mappings.error.value ? null : loadingNotice()) : mappings.data.value.mappings.length ? table() : emptyState({ title: "No mappings yet", text: "When you import a file, the mapping of its columns, its formats and its replaced values are kept here. The next file with these columns uses them.", actions: [] })),
  );
}
