// @ts-check
/** The first steps of an import: a file, a look at it, where its columns go. */
import { api, isAbort, me } from "../core/api.js";
import { h, listen } from "../core/dom.js";
import { bytes, count, percent } from "../core/format.js";
import { load } from "../core/load.js";
import { wholeAddress } from "../core/place.js";
import { go, guardChanges, href, query, setQuery, word } from "../core/router.js";
import { computed, effect, onCleanup, signal } from "../core/signal.js";
import { confirmDialog } from "../ui/dialog.js";
import { dropZone, keepPage } from "../ui/drop.js";
import { empty, failure, waiting } from "../ui/empty.js";
import { icon } from "../ui/icons.js";
import { refusal } from "../ui/refusal.js";
import { columnsTable, options } from "./import-columns.js";
import { file, look, namedBefore, newKey, setFile, submit, writableResources } from "./import-draft.js";
import { layoutForm, previewTable } from "./import-preview.js";
import { stepBar } from "./import-steps.js";

const FORMATS = ".csv,.tsv,.txt,.ndjson,.jsonl,.json,.xlsx,.parquet,.gz,.zst,.zip";

export function screen() {
  const step = word("step");
  const resource = word("resource");
  const resources = load(writableResources);
  const limits = load((signal) => api.get("/v1/limits", {}, signal));
  const found = look();
  const fault = signal("");
  keepPage();
  const now = () => (["preview", "columns"].includes(step.value) ? step.value : "file");

  effect(() => {
    const all = resources.data.value;
    if (all?.length === 1 && !resource.value) setQuery({ resource: all[0].name }, { replace: true });
  });

  /** @param {string} to */
  const at = (to) => ({ ...Object.fromEntries(query.value), step: to === "file" ? null : to });
  /** @param {File} given */
  const take = (given) => {
    fault.value = faultOf(given, limits.data.peek()?.max_file_size_mb);
    if (fault.value) return;
    setFile(given);
    if (resource.peek()) go("/imports/new", { ...at("preview") });
  };

  const chooser = () =>
    dropZone({
      label: "File to import",
      accept: FORMATS,
      says: file.value ? `${file.value.name}, ${bytes(file.value.size)}. Drop another file here to take that.` : namedBefore() ? `Drop ${namedBefore()} here again, or another file` : "Drop a file here",
      hint: `CSV, TSV, NDJSON, JSON, Excel (xlsx) or Parquet, also compressed${limits.data.value ? `; up to ${count(limits.data.value.max_file_size_mb)} MB` : ""}`,
      onFile: take,
    });
  const faultLine = () => (fault.value ? h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, fault.value) : null);

  const fileStep = () => [
    h("div", { class: "card stack" }, h("h2", null, "What is to be imported, and where to?"), resourceChoice(() => resources.data.value ?? [], resource), chooser, faultLine),
    h("div", { class: "row between" }, h("span", null), nextButton("To the preview", "preview", () => (!resource.value ? "choose where the rows go" : file.value === null ? "choose a file" : null))),
  ];
  const lost = () => h("div", { class: "card stack" }, h("p", { class: "notice" }, () => (file.value ? "Choose where the rows go." : `Choose ${namedBefore() ?? "the file"} again: a page may not keep it. What you have set is kept.`)), () => (resource.value ? null : resourceChoice(() => resources.data.value ?? [], resource)), chooser, faultLine);
  const isRead = computed(() => found.preview.value !== null);
  const looked = (/** @type {() => any} */ make) => [
    () => (found.error.value ? refusal(found.error.value, found.again) : null),
    () => (found.preview.value === null && !found.error.value ? waiting(sendingText()) : null),
    () => (isRead.value ? make() : null),
  ];
  const unread = () => (found.error.value ? "the file could not be read" : found.preview.value === null ? "the file was not read yet" : null);
  const sendingText = () => (file.value && found.sent.value ? `Looking at ${file.value.name}: ${percent(found.sent.value, file.value.size)} sent` : "Looking at the file …");
  const previewStep = () => [
    h("div", { class: "card stack" }, h("h2", null, () => `How ${file.value?.name ?? "the file"} was read`), layoutForm(() => found.preview.value?.layout ?? { format: file.value?.name.split(".").pop()?.toLowerCase() })),
    looked(() => found.preview.value && previewTable(found.preview.value)),
    h("div", { class: "row between" }, h("a", { class: "button", href: href("/imports/new", at("file")) }, "Back"), nextButton("To the columns", "columns", unread)),
  ];
  const columnsStep = () => [
    looked(() => columnsTable(found.preview)),
    options(),
    startButtons(() => (found.isLooking.value ? "the file is being looked at" : (unread() ?? (found.preview.value?.problems.length ? "the columns do not fit yet" : null)))),
  ];

  /** Which of them is shown. A word: whoever signs in again while a file is sent finds the same part, not a new one. */
  const part = computed(() => {
    if (resources.data.value?.length === 0 && me.value?.role !== "admin") return "nowhere";
    if (now() === "file") return "file";
    return file.value === null || !resource.value ? "lost" : now();
  });
  /** @type {Record<string, () => any>} */
  const parts = { nowhere, file: fileStep, lost, preview: previewStep, columns: columnsStep };

  /** @param {string} label @param {string} to @param {() => string | null} why */
  function nextButton(label, to, why) {
    return h("button", { type: "button", class: "main-act", disabled: () => why() !== null, title: why, on: { click: () => go("/imports/new", at(to)) } }, label);
  }

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/imports") }, "Imports"), " / new"),
    h("div", { class: "head" }, h("h1", null, "Import a file")),
    stepBar(now, (to) => (["file", "preview", "columns"].includes(to) && (to === "file" || (file.value && resource.value)) ? at(to) : null)),
    () => (resources.error.value ? failure(resources.error.value, resources.again) : null),
    () => parts[part.value](),
  );
}

/** @param {File} given @param {number | undefined} most */
function faultOf(given, most) {
  if (given.size === 0) return `${given.name} is empty.`;
  if (most && given.size > most * 2 ** 20) return `${given.name} has ${bytes(given.size)}: more than the ${count(most)} MB that this service takes. Compress it (gzip, zstd), or split it.`;
  return "";
}

/** @param {() => any[]} all @param {import("../core/signal.js").Signal<string>} chosen */
function resourceChoice(all, chosen) {
  const isOther = signal(false);
  const isTable = () => isOther.value || (chosen.value !== "" && !all().some((one) => one.name === chosen.value));
  const choose = (/** @type {Event} */ event) => {
    const { value } = /** @type {HTMLSelectElement} */ (event.target);
    isOther.value = value === "*";
    setQuery({ resource: value === "*" ? null : value, mapping: null }, { replace: true });
  };
  const name = (/** @type {Event} */ event) => setQuery({ resource: /** @type {HTMLInputElement} */ (event.target).value.trim(), mapping: null }, { replace: true });
  return h(
    "div",
    { class: "row" },
    h("label", { class: "field" }, "Into", h("select", { on: { change: choose } }, () => [
      h("option", { value: "", selected: chosen.value === "" && !isTable() }, "Choose …"),
      all().map((one) => h("option", { value: one.name, selected: one.name === chosen.value, disabled: Boolean(one.problem) }, one.name)),
      me.value?.role === "admin" ? h("option", { value: "*", selected: isTable() }, "Another table …") : null,
    ])),
    h("label", { class: "field", hidden: () => me.value?.role !== "admin" || !isTable() }, "Table, as in SQL", h("input", { type: "text", placeholder: "public.users", value: () => (isTable() ? chosen.value : ""), spellcheck: "false", on: { change: name } })),
    () => keyHint(all().find((one) => one.name === chosen.value)),
  );
}

/** @param {any} one */
function keyHint(one) {
  if (!one) return null;
  return h("span", { class: "hint" }, `${one.fields.filter((/** @type {any} */ field) => field.writable).length} fields${one.key.length ? `; rows are told apart by ${one.key.join(", ")}` : ""}`);
}

/** The file goes to the service: as a trial, or for good. @param {() => string | null} why not now */
function startButtons(why) {
  const sending = signal(/** @type {{sent: number, since: number, size: number, isTrial: boolean} | null} */ (null));
  const error = signal(/** @type {Error | null} */ (null));
  let stop = new AbortController();
  let [key, meant] = [newKey(), ""];
  onCleanup(() => stop.abort());
  onCleanup(guardChanges(() => sending.peek() === null || isFinished || confirmDialog({ title: "Stop sending the file?", says: [h("p", null, "It is still on its way. Another screen or setting gives it up, and nothing of it is kept.")], act: "Stop sending", isDanger: true, run: async () => stop.abort() })));
  listen(window, "beforeunload", (/** @type {Event} */ event) => sending.peek() !== null && event.preventDefault());
  let isFinished = false; // and on the way to where it can be looked at
  /** @param {boolean} isTrial */
  const start = async (isTrial) => {
    const given = /** @type {File} */ (file.peek());
    const meaning = `${isTrial} ${given.name} ${given.lastModified} ${query.peek()}`;
    if (meaning !== meant) [key, meant] = [newKey(), meaning];
    stop = new AbortController();
    error.value = null;
    sending.value = { sent: 0, since: Date.now(), size: given.size, isTrial };
    try {
      const made = await submit({ validate_only: isTrial, key, signal: stop.signal, onProgress: (sent) => sending.value && (sending.value = { ...sending.value, sent }) });
      isFinished = true;
      setFile(null);
      await go(`/imports/${made.key}`);
    } catch (problem) {
      if (!isAbort(problem)) error.value = /** @type {Error} */ (problem);
    } finally {
      sending.value = null;
    }
  };
  const isSending = () => sending.value !== null;
  return h(
    "div",
    { class: "stack" },
    () => (error.value ? refusal(error.value, null) : null),
    h("div", { hidden: () => !isSending(), class: "card stack" }, h("div", { class: "row between" }, h("span", { role: "status" }, () => uploadText(sending.value)), h("button", { type: "button", class: "small", on: { click: () => stop.abort() } }, "Stop")), h("progress", { class: "upload", "aria-label": "Upload", max: () => sending.value?.size ?? 1, value: () => sending.value?.sent ?? 0 })),
    h(
      "div",
      { class: "row between" },
      h("a", { class: "button", href: href("/imports/new", { ...Object.fromEntries(query.peek()), step: "preview" }) }, "Back"),
      h(
        "div",
        { class: "row" },
        h("span", { class: "hint" }, () => (why() ? `Not yet: ${why()}` : "")),
        h("button", { type: "button", disabled: () => why() !== null || isSending(), on: { click: () => start(false) } }, "Import without a check"),
        h("button", { type: "button", class: "main-act", disabled: () => why() !== null || isSending(), on: { click: () => start(true) } }, icon("check"), "Check all rows"),
      ),
    ),
  );
}

/** @param {{sent: number, since: number, size: number} | null} sending */
function uploadText(sending) {
  if (sending === null) return "";
  if (sending.sent >= sending.size) return "All of it is there; waiting for the service to say so";
  const seconds = (Date.now() - sending.since) / 1000;
  return `${bytes(sending.sent)} of ${bytes(sending.size)} sent${seconds > 1 ? `, ${bytes(sending.sent / seconds)}/s` : ""}`;
}

function nowhere() {
  return empty({
    title: "There is nothing you may import into",
    says: "Tables are declared in tidemill.toml, with the roles that may write them. Whoever runs this service can declare one, or import from the command line.",
    recipes: [
      ["In tidemill.toml", '[resources.users]\ntable = "public.users"\nkey = ["email"]\nread = ["user", "admin"]\nwrite = ["user", "admin"]'],
      ["From the command line", "tidemill import users.csv --into public.users --key email"],
      ["With curl", `curl "${wholeAddress("/v1/imports")}?resource=users" -H "Authorization: Bearer $KEY" -H 'Content-Type: text/csv' --data-binary @users.csv`],
    ],
  });
}
