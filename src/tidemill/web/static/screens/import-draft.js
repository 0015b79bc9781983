// @ts-check
/**
 * An import that is being prepared. What is said of it stands in the address; only the file is kept here, for a page
 * may not keep one: of that the tab remembers the name. From the moment it is submitted, everything is with the service.
 */
import { api, isAbort, me } from "../core/api.js";
import { query, setQuery } from "../core/router.js";
import { computed, effect, onCleanup, signal } from "../core/signal.js";
import { upload } from "../core/upload.js";

export const LAYOUT = ["format", "encoding", "delimiter", "quote", "line_end", "header", "compression", "sheet"];
const PLAIN = ["mode", "duplicates", "keep_empty", "spreadsheet_safe"];
const HEAD = 1 << 20; // bytes that a look needs of a file of lines; other files are looked at whole
const LINES = /\.(csv|tsv|txt|ndjson|jsonl)$/i;
const ROWS = 20;

/** Kept while somebody looks at another screen and comes back. @type {import("../core/signal.js").Signal<File | null>} */
export const file = signal(/** @type {File | null} */ (null));
const NAME = "tidemill.import-file";

/** Take a file, or let go of the one that is there. @param {File | null} given */
export function setFile(given) {
  file.value = given;
  try {
    if (given === null) sessionStorage.removeItem(NAME);
    else sessionStorage.setItem(NAME, JSON.stringify([me.peek()?.user_id, given.name]));
  } catch {
    // Then its name is not said when it is asked for again.
  }
}

/** What the file was called that this tab had before it was loaded anew; of the same user. @returns {string | null} */
export function namedBefore() {
  try {
    const [user, name] = JSON.parse(sessionStorage.getItem(NAME) ?? "[]");
    return user === me.peek()?.user_id ? (name ?? null) : null;
  } catch {
    return null;
  }
}

/** The words of the address as the API wants them. @param {URLSearchParams} said */
export function wordsOf(said) {
  const words = new URLSearchParams({ resource: said.get("resource") ?? "" });
  for (const name of [...LAYOUT, ...PLAIN]) if (said.has(name)) words.set(name, said.get(name) ?? "");
  if (words.get("quote") === "none") words.set("quote", "");
  if (said.has("mapping")) words.set("mapping", said.get("mapping") ?? "");
  const policy = policyOf(said);
  if (policy) words.set("policy", JSON.stringify(policy));
  return words;
}

/** @param {URLSearchParams} said */
function policyOf(said) {
  const mode = said.get("policy");
  if (!mode) return null;
  if (mode !== "tolerate") return { mode };
  return said.has("max_failed") ? { mode, max_failed: Number(said.get("max_failed")) } : { mode, max_percent: Number(said.get("max_percent") ?? 5) };
}

/** What was said of columns: column -> field. @param {URLSearchParams} said @returns {Record<string, string>} */
export function mappingOf(said) {
  try {
    const found = JSON.parse(said.get("mapping") ?? "{}");
    return found !== null && typeof found === "object" ? found : {};
  } catch {
    return {};
  }
}

/** @param {Record<string, string>} mapping */
export function setMapping(mapping) {
  return setQuery({ mapping: Object.keys(mapping).length ? JSON.stringify(mapping) : null }, { replace: true });
}

/** What the service says of the file, asked again whenever something was changed. */
export function look() {
  const preview = signal(/** @type {any} */ (null));
  const error = signal(/** @type {Error | null} */ (null));
  const isLooking = signal(false);
  const sent = signal(0);
  const tries = signal(0);
  const words = computed(() => wordsOf(query.value).toString());
  effect(() => {
    tries.value;
    const [given, said] = [file.value, words.value];
    if (given === null || !new URLSearchParams(said).get("resource")) {
      preview.value = error.value = null;
      return;
    }
    const stop = new AbortController();
    onCleanup(() => stop.abort());
    isLooking.value = true;
    sent.value = 0;
    ask(given, said, stop.signal, (n) => (sent.value = n)).then(
      (found) => {
        if (stop.signal.aborted) return;
        preview.value = found;
        error.value = null;
        isLooking.value = false;
      },
      (problem) => {
        if (stop.signal.aborted || isAbort(problem)) return;
        error.value = problem;
        isLooking.value = false;
      },
    );
  });
  // Columns of another file that was here before are nobody's.
  effect(() => {
    const found = preview.value;
    if (found === null) return;
    const said = mappingOf(query.peek());
    const known = Object.fromEntries(Object.entries(said).filter(([column]) => found.columns.includes(column)));
    if (Object.keys(known).length < Object.keys(said).length) setMapping(known);
  });
  return { preview, error, isLooking, sent, again: () => tries.update((n) => n + 1) };
}

/** @param {File} given @param {string} said @param {AbortSignal} signal @param {(sent: number) => void} onProgress */
async function ask(given, said, signal, onProgress) {
  const words = new URLSearchParams(said);
  words.set("rows", String(ROWS));
  words.set("filename", given.name);
  return upload(`/v1/imports/preview?${words}`, await head(given), { signal, onProgress });
}

/** Whole lines from the beginning of a long file. @param {File} given @returns {Promise<Blob>} */
export async function head(given) {
  if (given.size <= HEAD || !LINES.test(given.name)) return given;
  const bytes = new Uint8Array(await given.slice(0, HEAD).arrayBuffer());
  const end = bytes.lastIndexOf(10) + 1;
  if (end === 0) return given.slice(0, HEAD);
  return given.slice(0, bytes[end] === 0 ? end + 1 : end); // the second byte of a line end in UTF-16
}

/**
 * Send the file. Asked again after an answer was lost, the same job is meant.
 * @param {{validate_only: boolean, key: string, signal: AbortSignal, onProgress: (sent: number) => void}} how
 */
export async function submit({ validate_only, key, signal, onProgress }) {
  const given = /** @type {File} */ (file.peek());
  const words = wordsOf(query.peek());
  words.set("filename", given.name);
  if (validate_only) words.set("validate_only", "true");
  return upload(`/v1/imports?${words}`, given, { signal, onProgress, headers: { "idempotency-key": key } });
}

/** A key that nobody else has; also where the page did not come over TLS. */
export function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");
}

/** What may be imported into. @param {AbortSignal} signal */
export async function writableResources(signal) {
  const found = await api.get("/v1/resources", {}, signal);
  return found.resources.filter((/** @type {any} */ one) => one.may_write);
}
