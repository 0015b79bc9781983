-- The open batches of a job from a place on, oldest change first: a range of the index for each state that is asked
-- for. Index: batch_open_job.
SELECT b.* FROM unnest(%(states)s::text[], %(retryings)s::boolean[]) AS asked(state, retrying)
CROSS JOIN LATERAL (
    SELECT id, job_id, since, open AS items, CASE WHEN seqs IS NULL THEN hi - lo ELSE open END AS width, false AS is_end
    FROM tidemill.batch
    -- Rows are compared whole: else batch_open_all may be walked past the batches of every other job.
    WHERE state IN ('ready', 'leased')
      AND (job_id, state, retrying, since, id) >= (%(job_id)s, asked.state, asked.retrying, %(since)s, %(batch)s)
      AND (job_id, state, retrying, since) < (%(job_id)s, asked.state, asked.retrying, %(until)s)
    ORDER BY job_id, state, retrying, since, id LIMIT %(limit)s
) b
ORDER BY b.since, b.id LIMIT %(limit)s
