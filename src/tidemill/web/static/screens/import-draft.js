// @ts-check
/**
 * An import that is being prepared. Its settings are query parameters. The file is kept in memory, as a page cannot store
 * it; the tab stores its name. After it is submitted, the service has everything.
 */
import { api, currentUser, isAbortError } from "../core/api.js";
import { query, setQuery } from "../core/router.js";
import { computed, effect, onCleanup, signal } from "../core/signal.js";
import { uploadFile } from "../core/upload.js";

const LAYOUT_PARAMS = ["format", "encoding", "delimiter", "quote", "escape", "line_end", "header", "header_rows", "skip_lines", "footer_lines", "comment", "table", "table_lines", "trailing_delimiter", "short_rows", "long_rows", "records", "flatten", "compression", "sheet"];
const RULE_PARAMS = ["mode", "duplicates", "keep_empty", "spreadsheet_safe", "undo"];
const JSON_PARAMS = ["mapping", "translations", "formats", "constants", "computed", "skip", "lookups", "create_missing"];
const HEAD_BYTES = 1 << 20; // enough for the preview of a line-based file; other files are sent completely
const LINE_FORMATS = /\.(csv|tsv|txt|ndjson|jsonl)$/i;
const PREVIEW_ROWS = 20;
const LINE_END_NAMES = new Map([["\n", "lf"], ["\r\n", "crlf"], ["\r", "cr"]]);

/** Kept while the user visits another screen. @type {import("../core/signal.js").Signal<File | null>} */
export const draftFile = signal(/** @type {File | null} */ (null));
const STORAGE_KEY = "tidemill.import-file";

/** Sets the chosen file, or removes it. @param {File | null} file */
export function setDraftFile(file) {
  draftFile.value = file;
  try {
    if (file === null) sessionStorage.removeItem(STORAGE_KEY);
    else sessionStorage.setItem(STORAGE_KEY, JSON.stringify([currentUser.peek()?.user_id, file.name]));
  } catch {
    // Storage is unavailable: the name is not shown after a reload.
  }
}

/** The name of the file that the same user had chosen in this tab before a reload. @returns {string | null} */
export function previousFileName() {
  try {
    const [user, name] = JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "[]");
    return user === currentUser.peek()?.user_id ? (name ?? null) : null;
  } catch {
    return null;
  }
}

/** The query parameters in the format of the API. @param {URLSearchParams} urlParams */
function importParams(urlParams) {
  const params = new URLSearchParams({ resource: urlParams.get("resource") ?? "" });
  for (const name of [...LAYOUT_PARAMS, ...RULE_PARAMS]) if (urlParams.has(name)) params.set(name, urlParams.get(name) ?? "");
  if (params.get("quote") === "none") params.set("quote", "");
  for (const name of JSON_PARAMS) if (urlParams.has(name)) params.set(name, urlParams.get(name) ?? "");
  const policy = failurePolicy(urlParams);
  if (policy) params.set("policy", JSON.stringify(policy));
  return params;
}

/** @param {URLSearchParams} urlParams */
function failurePolicy(urlParams) {
  const mode = urlParams.get("policy");
  if (!mode) return null;
  if (mode !== "tolerate") return { mode };
  return urlParams.has("max_failed") ? { mode, max_failed: Number(urlParams.get("max_failed")) } : { mode, max_percent: Number(urlParams.get("max_percent") ?? 5) };
}

/** The mapping in the URL, from column to field. @param {URLSearchParams} urlParams @returns {Record<string, string>} */
export function mappingFromUrl(urlParams) {
  try {
    const found = JSON.parse(urlParams.get("mapping") ?? "{}");
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

/** @param {Record<string, string>} mapping */
export function setMapping(mapping) {
  return setQuery({ mapping: Object.keys(mapping).length ? JSON.stringify(mapping) : null }, { replace: true });
}

/** The translations in the URL, by field and text in the file. @param {URLSearchParams} urlParams @returns {Record<string, Record<string, string>>} */
export function translationsFromUrl(urlParams) {
  try {
    const found = JSON.parse(urlParams.get("translations") ?? "{}");
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

/** The parameters with the options that a remembered mapping completed. @param {URLSearchParams} params @param {any} remembered */
function withRemembered(params, remembered) {
  if (!remembered) return params;
  for (const [name, value] of Object.entries(remembered.request)) params.set(name, JSON.stringify(value));
  for (const [name, value] of Object.entries(remembered.layout)) params.set(name, LINE_END_NAMES.get(/** @type {any} */ (value)) ?? String(value));
  return params;
}

/** The formats in the URL, by field. @param {URLSearchParams} urlParams @returns {Record<string, string>} */
export function formatsFromUrl(urlParams) {
  try {
    const found = JSON.parse(urlParams.get("formats") ?? "{}");
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

/** Sets the format of a field; null detects it. @param {string} field @param {string | null} format */
export function setFormat(field, format) {
  const formats = formatsFromUrl(query.peek());
  if (format === null) delete formats[field];
  else formats[field] = format;
  return setQuery({ formats: Object.keys(formats).length ? JSON.stringify(formats) : null }, { replace: true });
}

/** The lookups in the URL, by field: columns separated by commas, empty for keys. @param {URLSearchParams} urlParams @returns {Record<string, string>} */
export function lookupsFromUrl(urlParams) {
  try {
    const found = JSON.parse(urlParams.get("lookups") ?? "{}");
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

/** The fields in the URL whose missing rows are created. @param {URLSearchParams} urlParams @returns {string[]} */
function createMissingFromUrl(urlParams) {
  try {
    const found = JSON.parse(urlParams.get("create_missing") ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

/**
 * Sets the columns by which the rows of a reference are found; empty uses the keys in the file.
 * @param {string} field @param {string} by @param {{create?: boolean, mapping?: Record<string, string>}} [options] mapping: set at the same time
 */
export function setLookup(field, by, { create = false, mapping } = {}) {
  const lookups = { ...lookupsFromUrl(query.peek()), [field]: by };
  const others = createMissingFromUrl(query.peek()).filter((one) => one !== field);
  const creating = create ? [...others, field] : others;
  return setQuery({ lookups: JSON.stringify(lookups), create_missing: creating.length ? JSON.stringify(creating) : null, ...(mapping ? { mapping: JSON.stringify(mapping) } : {}) }, { replace: true });
}

/** Sets the text to import instead of a text in the file; null imports the text unchanged. @param {string} field @param {string} text @param {string | null} replacement */
export function setTranslation(field, text, replacement) {
  const all = translationsFromUrl(query.peek());
  const ofField = { ...all[field] };
  if (replacement === null) delete ofField[text];
  else ofField[text] = replacement;
  if (Object.keys(ofField).length) all[field] = ofField;
  else delete all[field];
  return setQuery({ translations: Object.keys(all).length ? JSON.stringify(all) : null }, { replace: true });
}

/** The rules of the user: those in the URL, or else those that the remembered mapping completed. @param {any} preview @param {URLSearchParams} urlParams */
export function rulesFromUrl(preview, urlParams) {
  const remembered = urlParams.get("memory") === "false" ? null : (preview?.remembered?.request ?? null);
  /** @param {string} name @param {any} nothing */
  const read = (name, nothing) => {
    if (remembered) return remembered[name] ?? nothing;
    try {
      return JSON.parse(urlParams.get(name) ?? "null") ?? nothing;
    } catch {
      return nothing;
    }
  };
  return { constants: /** @type {Record<string, string>} */ (read("constants", {})), computed: /** @type {Record<string, string>} */ (read("computed", {})), skip: /** @type {string[]} */ (read("skip", [])) };
}

/**
 * Sets the rules. The options of a remembered mapping become those of the user, so that a rule of it can be removed.
 * @param {any} preview @param {{constants: Record<string, string>, computed: Record<string, string>, skip: string[]}} rules
 */
export function setRules(preview, rules) {
  /** @type {Record<string, string | null>} */
  const params = {};
  if (preview?.remembered && query.peek().get("memory") !== "false") {
    for (const [name, value] of withRemembered(new URLSearchParams(), preview.remembered)) params[name] = value;
    params.memory = "false";
  }
  for (const [name, value] of Object.entries(rules)) params[name] = Object.keys(value).length ? JSON.stringify(value) : null;
  return setQuery(params, { replace: true });
}

/** The preview of the file, requested again when a setting changes. */
export function previewFile() {
  const preview = signal(/** @type {any} */ (null));
  const error = signal(/** @type {Error | null} */ (null));
  const isPreviewing = signal(false);
  const sent = signal(0);
  const attempts = signal(0);
  const params = computed(() => `${importParams(query.value)} ${query.value.get("memory") ?? ""}`);
  effect(() => {
    void attempts.value;
    const [file, queryText] = [draftFile.value, /** @type {string} */ (params.value.split(" ")[0])];
    if (file === null || !new URLSearchParams(queryText).get("resource")) {
      preview.value = error.value = null;
      return;
    }
    const stop = new AbortController();
    onCleanup(() => stop.abort());
    isPreviewing.value = true;
    sent.value = 0;
    requestPreview(file, queryText, stop.signal, (n) => (sent.value = n)).then(
      (found) => {
        if (stop.signal.aborted) return;
        preview.value = found;
        error.value = null;
        isPreviewing.value = false;
      },
      (problem) => {
        if (stop.signal.aborted || isAbortError(problem)) return;
        error.value = problem;
        isPreviewing.value = false;
      },
    );
  });
  // Remove mappings for columns that the file does not have.
  effect(() => {
    const found = preview.value;
    if (found === null) return;
    const mapping = mappingFromUrl(query.peek());
    const known = Object.fromEntries(Object.entries(mapping).filter(([column]) => found.columns.includes(column)));
    if (Object.keys(known).length < Object.keys(mapping).length) setMapping(known);
  });
  return { preview, error, isPreviewing, sent, again: () => attempts.update((n) => n + 1) };
}

/** @param {File} file @param {string} queryText @param {AbortSignal} signal @param {(sent: number) => void} onProgress */
async function requestPreview(file, queryText, signal, onProgress) {
  const params = new URLSearchParams(queryText);
  params.set("rows", String(PREVIEW_ROWS));
  params.set("filename", file.name);
  if (query.peek().get("memory") === "false") params.set("memory", "false");
  return uploadFile(`/v1/imports/preview?${params}`, await fileHead(file), { signal, onProgress });
}

/** The beginning of a large line-based file, cut at a line end. @param {File} file @returns {Promise<Blob>} */
export async function fileHead(file) {
  if (file.size <= HEAD_BYTES || !LINE_FORMATS.test(file.name)) return file;
  const bytes = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
  const end = bytes.lastIndexOf(10) + 1;
  if (end === 0) return file.slice(0, HEAD_BYTES);
  return file.slice(0, bytes[end] === 0 ? end + 1 : end); // the second byte of a UTF-16 line end
}

/**
 * Submits the file. With the same key, a repeated request returns the same job.
 * @param {{validate_only: boolean, key: string, signal: AbortSignal, remembered: any, onProgress: (sent: number) => void}} options
 */
export async function submitImport({ validate_only, key, signal, remembered, onProgress }) {
  const file = /** @type {File} */ (draftFile.peek());
  const params = withRemembered(importParams(query.peek()), remembered);
  params.set("filename", file.name);
  if (validate_only) params.set("validate_only", "true");
  return uploadFile(`/v1/imports?${params}`, file, { signal, onProgress, headers: { "idempotency-key": key } });
}

/** The resources that the user may import into. @param {AbortSignal} signal */
export async function fetchWritableResources(signal) {
  const found = await api.get("/v1/resources", {}, signal);
  return found.resources.filter((/** @type {any} */ one) => one.may_write);
}
