// @ts-check
/** The first steps of an import: file, preview, columns. */
import { api, currentUser, isAbortError, newIdempotencyKey } from "../core/api.js";
import { h, listen } from "../core/dom.js";
import { formatBytes, formatNumber, formatPercent } from "../core/format.js";
import { setTabTitle } from "../core/job-names.js";
import { remoteData } from "../core/remote-data.js";
import { addNavigationGuard, href, navigate, query, queryParam, setQuery } from "../core/router.js";
import { computed, effect, onCleanup, signal } from "../core/signal.js";
import { commandSnippet } from "../ui/copy-button.js";
import { confirmDialog } from "../ui/dialog.js";
import { dropZone, preventPageDrop } from "../ui/drop-zone.js";
import { icon } from "../ui/icons.js";
import { emptyState, errorNotice, loadingNotice, validationNotice } from "../ui/notices.js";
import { columnsTable, importOptions, translationTable } from "./import-columns.js";
import { rememberedNotice } from "./import-mappings.js";
import { draftFile, fetchWritableResources, previewFile, previousFileName, setDraftFile, submitImport } from "./import-draft.js";
import { findingList, layoutForm, previewTable } from "./import-preview.js";
import { rulesCard } from "./import-rules.js";
import { stepBar } from "./import-steps.js";

const FORMATS = ".csv,.tsv,.txt,.ndjson,.jsonl,.json,.xlsx,.parquet,.gz,.zst,.zip";

export function screen() {
  const step = queryParam("step");
  const resource = queryParam("resource");
  const resources = remoteData(fetchWritableResources);
  const limits = remoteData((signal) => api.get("/v1/limits", {}, signal));
  const previewed = previewFile();
  const problem = signal("");
  const typed = signal(""); // a table name that is being typed; it becomes the resource when the field loses the focus
  const isOther = signal(false);
  const target = () => typed.value || resource.value;
  preventPageDrop();
  const currentStep = () => (["preview", "columns"].includes(step.value) ? step.value : "file");

  effect(() => {
    const all = resources.data.value;
    if (all?.length === 1 && !resource.peek() && !isOther.peek()) setQuery({ resource: all[0].name }, { replace: true });
  });

  /** @param {string} to */
  const stepParams = (to) => ({ ...Object.fromEntries(query.value), step: to === "file" ? null : to });
  /** @param {File} file */
  const acceptFile = (file) => {
    problem.value = fileProblem(file, limits.data.peek()?.max_file_size_mb);
    if (problem.value) return;
    setDraftFile(file);
    if (target()) navigate("/imports/new", { ...stepParams("preview"), resource: target() });
  };

  const chooser = () =>
    dropZone({
      label: "File to import",
      accept: FORMATS,
      text: draftFile.value ? `${draftFile.value.name}, ${formatBytes(draftFile.value.size)}. Drop another file here to replace it.` : previousFileName() ? `Drop ${previousFileName()} here again, or another file` : "Drop a file here",
      hint: `CSV, TSV, NDJSON, JSON, Excel (xlsx) or Parquet, also compressed${limits.data.value ? `; up to ${formatNumber(limits.data.value.max_file_size_mb)} MB` : ""}`,
      onFile: acceptFile,
    });
  const problemLine = () => (problem.value ? h("p", { class: "notice", role: "alert", data: { tone: "bad" } }, problem.value) : null);

  const fileStep = () => [
    h("div", { class: "card stack" }, stepHeading("File and target table"), resourceChoice(() => resources.data.value ?? [], resource, typed, isOther), chooser, problemLine),
    h("div", { class: "row between" }, h("span", null), nextButton("Continue to preview", "preview", () => (!target() ? "Choose a target table" : draftFile.value === null ? "Choose a file" : null))),
  ];
  const missingFileStep = () => h("div", { class: "card stack" }, stepHeading("The file is missing"), h("p", { class: "notice" }, () => (draftFile.value ? "Choose a target table." : `Choose ${previousFileName() ?? "the file"} again: browsers do not keep files when a page reloads. Your settings are kept.`)), () => (resource.value ? null : resourceChoice(() => resources.data.value ?? [], resource, typed, isOther)), chooser, problemLine);
  const hasPreview = computed(() => previewed.preview.value !== null);
  const whenPreviewed = (/** @type {() => any} */ make) => [
    () => (previewed.error.value ? validationNotice(previewed.error.value, previewed.again) : null),
    () => (previewed.preview.value === null && !previewed.error.value ? loadingNotice(sendingText()) : null),
    () => (hasPreview.value ? make() : null),
  ];
  const notReadReason = () => (previewed.error.value ? "The file could not be read" : previewed.preview.value === null ? "The file is still being read" : null);
  const sendingText = () => (draftFile.value && previewed.sent.value ? `Reading ${draftFile.value.name}: ${formatPercent(previewed.sent.value, draftFile.value.size)} uploaded` : "Reading the file …");
  const previewStep = () => [
    h("div", { class: "card stack" }, stepHeading(() => `Detected format of ${draftFile.value?.name ?? "the file"}`), layoutForm(() => previewed.preview.value?.layout ?? { format: draftFile.value?.name.split(".").pop()?.toLowerCase() })),
    whenPreviewed(() => previewed.preview.value && [findingList(previewed.preview.value), previewTable(previewed.preview.value)]),
    h("div", { class: "row between" }, h("a", { class: "button", href: href("/imports/new", stepParams("file")) }, "Back"), nextButton("Continue to columns", "columns", notReadReason)),
  ];
  const columnsStep = () => [
    stepHeading("Columns"),
    whenPreviewed(() => [rememberedNotice(previewed), columnsTable(previewed.preview), translationTable(previewed.preview), rulesCard(previewed.preview)]),
    importOptions(previewed.preview),
    startButtons(previewed.preview, () => (previewed.isPreviewing.value ? "The preview is being updated" : (notReadReason() ?? (previewed.preview.value?.problems.length ? "Fix the problems of the columns first" : null)))),
  ];

  let isFirstStep = true;
  /** The heading of a step. It gets the focus when the user goes to another step. @param {import("../core/dom.js").Child} text */
  function stepHeading(text) {
    const heading = h("h2", { tabindex: "-1" }, text);
    if (!isFirstStep) queueMicrotask(() => heading.focus());
    isFirstStep = false;
    return heading;
  }
  const title = () => (currentStep() === "file" || !resource.value ? "Import a file" : `Import into ${resource.value}`);
  const fileName = () => (currentStep() === "file" ? "" : (draftFile.value?.name ?? previousFileName() ?? ""));
  effect(() => setTabTitle(title(), fileName()));

  /** The step to show. Compared as text, so that signing in again during an upload does not render it again. */
  const part = computed(() => {
    if (resources.data.value?.length === 0 && currentUser.value?.role !== "admin") return "noResources";
    if (currentStep() === "file") return "file";
    return draftFile.value === null || !resource.value ? "missingFile" : currentStep();
  });
  /** @type {Record<string, () => any>} */
  const parts = { noResources, file: fileStep, missingFile: missingFileStep, preview: previewStep, columns: columnsStep };

  /** @param {string} label @param {string} to @param {() => string | null} disabledReason */
  function nextButton(label, to, disabledReason) {
    return h("button", { type: "button", class: "main-act", disabled: () => disabledReason() !== null, title: disabledReason, on: { click: () => navigate("/imports/new", { ...stepParams(to), resource: target() }) } }, label);
  }

  return h(
    "div",
    { class: "screen" },
    h("div", { class: "crumbs" }, h("a", { href: href("/imports") }, "Imports"), " / new"),
    h("div", { class: "head" }, h("h1", null, title, () => (fileName() ? h("span", { class: "file-name" }, ` ${fileName()}`) : null))),
    stepBar(currentStep, (to) => (["file", "preview", "columns"].includes(to) && (to === "file" || (draftFile.value && resource.value)) ? stepParams(to) : null)),
    () => (resources.error.value ? errorNotice(resources.error.value, resources.reload) : null),
    () => parts[part.value](),
  );
}

/** @param {File} file @param {number | undefined} maxSizeMb */
function fileProblem(file, maxSizeMb) {
  if (file.size === 0) return `${file.name} is empty.`;
  if (maxSizeMb && file.size > maxSizeMb * 2 ** 20) return `${file.name} has ${formatBytes(file.size)}; the limit is ${formatNumber(maxSizeMb)} MB. Compress it (gzip, zstd) or split it.`;
  return "";
}

/**
 * @param {() => any[]} all @param {import("../core/signal.js").Signal<string>} chosen @param {import("../core/signal.js").Signal<string>} typed
 * @param {import("../core/signal.js").Signal<boolean>} isOther the user chose "Another table …"
 */
function resourceChoice(all, chosen, typed, isOther) {
  const isTable = () => isOther.value || (chosen.value !== "" && !all().some((one) => one.name === chosen.value));
  const choose = (/** @type {Event} */ event) => {
    const { value } = /** @type {HTMLSelectElement} */ (event.target);
    isOther.value = value === "*";
    typed.value = "";
    setQuery({ resource: value === "*" ? null : value, mapping: null, translations: null, formats: null, lookups: null, create_missing: null, constants: null, computed: null, skip: null, memory: null }, { replace: true });
  };
  const inputText = (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.target).value.trim();
  const type = (/** @type {Event} */ event) => (typed.value = inputText(event));
  const name = async (/** @type {Event} */ event) => {
    await setQuery({ resource: inputText(event), mapping: null, translations: null, formats: null, lookups: null, create_missing: null, constants: null, computed: null, skip: null, memory: null }, { replace: true });
    typed.value = "";
  };
  return h(
    "div",
    { class: "row" },
    h("label", { class: "field" }, "Import into", h("select", { on: { change: choose } }, () => [
      h("option", { value: "", selected: chosen.value === "" && !isTable() }, "Choose …"),
      all().map((one) => h("option", { value: one.name, selected: one.name === chosen.value, disabled: Boolean(one.problem) }, one.name)),
      currentUser.value?.role === "admin" ? h("option", { value: "*", selected: isTable() }, "Another table …") : null,
    ])),
    h("label", { class: "field", hidden: () => currentUser.value?.role !== "admin" || !isTable() }, "Table name", h("input", { type: "text", placeholder: "public.users", value: () => (isTable() ? chosen.value : ""), spellcheck: "false", on: { input: type, change: name } })),
    () => resourceHint(all().find((one) => one.name === chosen.value)),
  );
}

/** @param {any} one */
function resourceHint(one) {
  if (!one) return null;
  return h("span", { class: "hint" }, `${one.fields.filter((/** @type {any} */ field) => field.writable).length} fields${one.key.length ? `; key: ${one.key.join(", ")}` : ""}`);
}

/** The buttons that submit the file, as a dry run or as an import. @param {import("../core/signal.js").Signal<any>} preview @param {() => string | null} disabledReason null if the file can be submitted */
function startButtons(preview, disabledReason) {
  const sending = signal(/** @type {{sent: number, since: number, size: number, isDryRun: boolean} | null} */ (null));
  const error = signal(/** @type {Error | null} */ (null));
  let stop = new AbortController();
  let [key, keyedRequest] = [newIdempotencyKey(), ""];
  onCleanup(() => stop.abort());
  onCleanup(addNavigationGuard(() => sending.peek() === null || isFinished || confirmDialog({ title: "Stop the upload?", content: [h("p", null, "The upload is still in progress. Leaving discards it.")], actionLabel: "Stop the upload", isDanger: true, run: async () => stop.abort() })));
  listen(window, "beforeunload", (/** @type {Event} */ event) => sending.peek() !== null && event.preventDefault());
  let isFinished = false; // and navigating to the import
  /** @param {boolean} isDryRun */
  const start = async (isDryRun) => {
    const file = /** @type {File} */ (draftFile.peek());
    const request = `${isDryRun} ${file.name} ${file.lastModified} ${query.peek()}`;
    if (request !== keyedRequest) [key, keyedRequest] = [newIdempotencyKey(), request];
    stop = new AbortController();
    error.value = null;
    sending.value = { sent: 0, since: Date.now(), size: file.size, isDryRun };
    try {
      const made = await submitImport({ validate_only: isDryRun, key, signal: stop.signal, remembered: preview.peek()?.remembered, onProgress: (sent) => sending.value && (sending.value = { ...sending.value, sent }) });
      isFinished = true;
      setDraftFile(null);
      await navigate(`/imports/${made.key}`);
    } catch (problem) {
      if (!isAbortError(problem)) error.value = /** @type {Error} */ (problem);
    } finally {
      sending.value = null;
    }
  };
  const isSending = () => sending.value !== null;
  return h(
    "div",
    { class: "stack" },
    () => (error.value ? validationNotice(error.value, null) : null),
    h("div", { hidden: () => !isSending(), class: "card stack" }, h("div", { class: "row between" }, h("span", { role: "status" }, () => uploadText(sending.value)), h("button", { type: "button", class: "small", on: { click: () => stop.abort() } }, "Stop")), h("progress", { class: "upload", "aria-label": "Upload", max: () => sending.value?.size ?? 1, value: () => sending.value?.sent ?? 0 })),
    h(
      "div",
      { class: "row between" },
      h("a", { class: "button", href: href("/imports/new", { ...Object.fromEntries(query.peek()), step: "preview" }) }, "Back"),
      h(
        "div",
        { class: "row" },
        h("span", { class: "hint" }, () => disabledReason() ?? ""),
        h("button", { type: "button", disabled: () => disabledReason() !== null || isSending(), on: { click: () => start(false) } }, "Import without checking"),
        h("button", { type: "button", class: "main-act", disabled: () => disabledReason() !== null || isSending(), on: { click: () => start(true) } }, icon("check"), "Check all rows"),
      ),
    ),
  );
}

/** @param {{sent: number, since: number, size: number} | null} sending */
function uploadText(sending) {
  if (sending === null) return "";
  if (sending.sent >= sending.size) return "Upload complete, waiting for the service to confirm";
  const seconds = (Date.now() - sending.since) / 1000;
  return `${formatBytes(sending.sent)} of ${formatBytes(sending.size)} uploaded${seconds > 1 ? `, ${formatBytes(sending.sent / seconds)}/s` : ""}`;
}

function noResources() {
  return emptyState({
    title: "No table is set up for your imports",
    text: 'Ask an administrator to declare a table in tidemill.toml, with "user" in its "write" list, and to restart the service:',
    actions: [commandSnippet("In tidemill.toml", '[resources.users]\ntable = "public.users"\nkey = ["email"]\nread = ["user", "admin"]\nwrite = ["user", "admin"]')],
  });
}
