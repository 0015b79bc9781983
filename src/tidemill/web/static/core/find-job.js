// @ts-check
/** Finds a job by its key, its ID, or a prefix of either. */
import { api } from "./api.js";
import { ownerScope } from "./live-updates.js";
import { remoteData } from "./remote-data.js";
import { computed } from "./signal.js";

/** @typedef {{id: string | null, job: any, problem: string | null}} FoundJob */

/**
 * Looks up the job for a query parameter. The value is null while the lookup is in progress.
 * @param {import("./signal.js").Signal<string>} typed
 * @returns {import("./signal.js").Signal<FoundJob | null>}
 */
export function findJob(typed) {
  const found = remoteData(async (signal) => {
    const text = typed.value.trim();
    const owner = ownerScope.value;
    if (text === "") return { text, jobs: [] };
    return { text, jobs: (await api.get("/v1/jobs", { q: text, user_id: owner, page_size: 2 }, signal)).jobs };
  });
  return computed(() => {
    const text = typed.value.trim();
    if (text === "") return { id: null, job: null, problem: null };
    if (found.error.value) return { id: null, job: null, problem: found.error.value.message };
    if (found.data.value?.text !== text) return null;
    const [job, other] = found.data.value.jobs;
    if (!job) return { id: null, job: null, problem: `No job found whose key or ID starts with "${text}"` };
    if (other) return { id: null, job: null, problem: `Several jobs start with "${text}". Type more characters.` };
    return { id: job.id, job, problem: null };
  });
}
