-- List open batches of a job from a cursor on, oldest change first, with one index range for each requested state.
-- Index: batch_open_job.
SELECT b.* FROM unnest(%(states)s::text[], %(retryings)s::boolean[]) AS asked(state, retrying)
CROSS JOIN LATERAL (
    SELECT id, job_id, since, open AS items, CASE WHEN seqs IS NULL THEN hi - lo ELSE open END AS width, false AS is_end
    FROM tidemill.batch
    -- Row comparison keeps the planner from scanning batch_open_all past the batches of other jobs.
    WHERE state IN ('ready', 'leased')
      AND (job_id, state, retrying, since, id) >= (%(job_id)s, asked.state, asked.retrying, %(since)s, %(batch)s)
      AND (job_id, state, retrying, since) < (%(job_id)s, asked.state, asked.retrying, %(until)s)
    ORDER BY job_id, state, retrying, since, id LIMIT %(limit)s
) b
ORDER BY b.since, b.id LIMIT %(limit)s
