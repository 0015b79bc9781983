-- The open batches of a job from a place on, oldest change first: a range of the index for each state that is asked
-- for. Index: batch_open_job.
SELECT b.* FROM unnest(%(states)s::text[], %(retryings)s::boolean[]) AS asked(state, retrying)
CROSS JOIN LATERAL (
    SELECT id, since, open AS items, CASE WHEN seqs IS NULL THEN hi - lo ELSE open END AS width, false AS is_end
    FROM tidemill.batch
    WHERE job_id = %(job_id)s AND state IN ('ready', 'leased') AND state = asked.state AND retrying = asked.retrying
      AND (since, id) >= (%(since)s, %(batch)s) AND since < %(until)s
    ORDER BY since, id LIMIT %(limit)s
) b
ORDER BY b.since, b.id LIMIT %(limit)s
