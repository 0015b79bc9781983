// @ts-check
/** Finds a job by its key, its ID, a prefix of either, or a part of its file name. */
import { api } from "./api.js";
import { ownerScope } from "./live-updates.js";
import { remoteData } from "./remote-data.js";
import { computed } from "./signal.js";

/** @typedef {{id: string | null, job: any, problem: string | null}} FoundJob */

const SHOWN_JOBS = 5;

/** @param {any[]} jobs */
function listKeys(jobs) {
  const keys = jobs.slice(0, SHOWN_JOBS).map((job) => job.key);
  return [...keys, ...(jobs.length > SHOWN_JOBS ? ["…"] : [])].join(", ");
}

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
    const byKey = await api.get("/v1/jobs", { q: text, user_id: owner, page_size: SHOWN_JOBS + 1 }, signal);
    if (byKey.jobs.length > 0) return { text, jobs: byKey.jobs };
    return { text, jobs: (await api.get("/v1/jobs", { search: text, user_id: owner, page_size: SHOWN_JOBS + 1 }, signal)).jobs };
  });
  return computed(() => {
    const text = typed.value.trim();
    if (text === "") return { id: null, job: null, problem: null };
    if (found.error.value) return { id: null, job: null, problem: found.error.value.message };
    if (found.data.value?.text !== text) return null;
    const [job, other] = found.data.value.jobs;
    if (!job) return { id: null, job: null, problem: `No job found with the key, ID or file name "${text}"` };
    if (other) return { id: null, job: null, problem: `Several jobs match "${text}": ${listKeys(found.data.value.jobs)}. Type the key of one job.` };
    return { id: job.id, job, problem: null };
  });
}
