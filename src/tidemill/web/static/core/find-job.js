// @ts-check
/** A job by what somebody types: its key, its id, or the beginning of one. */
import { api } from "./api.js";
import { load } from "./load.js";
import { computed } from "./signal.js";
import { scope } from "./sse.js";

/** @typedef {{id: string | null, job: any, problem: string | null}} FoundJob */

/**
 * Follows a word of the address. Null while it is being looked for.
 * @param {import("./signal.js").Signal<string>} said
 * @returns {import("./signal.js").Signal<FoundJob | null>}
 */
export function findJob(said) {
  const found = load(async (signal) => {
    const text = said.value.trim();
    const whose = scope.value;
    if (text === "") return { text, jobs: [] };
    return { text, jobs: (await api.get("/v1/jobs", { q: text, user_id: whose, page_size: 2 }, signal)).jobs };
  });
  return computed(() => {
    const text = said.value.trim();
    if (text === "") return { id: null, job: null, problem: null };
    if (found.error.value) return { id: null, job: null, problem: found.error.value.message };
    if (found.data.value?.text !== text) return null;
    const [job, other] = found.data.value.jobs;
    if (!job) return { id: null, job: null, problem: `No job of yours has a key or id that begins with ${text}.` };
    if (other) return { id: null, job: null, problem: `Several jobs begin with ${text}: type more of it.` };
    return { id: job.id, job, problem: null };
  });
}
