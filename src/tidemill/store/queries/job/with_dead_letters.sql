-- List the newest jobs, from an id on downwards, whose counters have failures of a category. Index: job_of_owner,
-- job_pkey, job_tally_pkey, batch_unfolded.
SELECT j.id FROM tidemill.job j LEFT JOIN tidemill.job_tally t ON t.job_id = j.id
WHERE j.id <= %(last_job)s AND j.purged_at IS NULL
  AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s) AND (%(kind)s::text IS NULL OR j.kind = %(kind)s)
  AND (EXISTS (SELECT 1 FROM jsonb_object_keys(t.codes) AS c(code)
               WHERE tidemill.failure_category(j.kind, j.params, c.code) = %(category)s)
       OR (j.closed_as IS NULL AND EXISTS (
           SELECT 1 FROM tidemill.batch b CROSS JOIN LATERAL jsonb_object_keys(b.codes) AS c(code)
           WHERE b.job_id = j.id AND NOT b.folded AND b.codes IS NOT NULL
             AND tidemill.failure_category(j.kind, j.params, c.code) = %(category)s)))
ORDER BY j.id DESC LIMIT %(limit)s
