-- Return the next job, in order of id, that matches and has dead letters, or that was named and failed as a whole.
-- Skips jobs of a denied kind, and jobs that read or write a denied resource or dataset. Index: job_pkey, outcome_exception.
SELECT j.id, j.closed_as = 'failed' AS failed_as_a_whole FROM tidemill.job j
WHERE j.id >= %(from_job)s AND j.purged_at IS NULL
  AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s)
  AND (%(kind)s::text IS NULL OR j.kind = %(kind)s)
  AND (%(job_ids)s::uuid[] IS NULL OR j.id = ANY(%(job_ids)s))
  AND (%(denied)s::text[] IS NULL OR j.kind <> ALL(%(denied)s))
  AND (%(denied)s::text[] IS NULL OR coalesce(j.kind || ':' || coalesce(
      j.params->'plan'->'resource'->>'name', j.params->'plan'->>'resource', j.params->>'dataset'), '') <> ALL(%(denied)s))
  AND (EXISTS (SELECT 1 FROM tidemill.outcome o WHERE o.job_id = j.id AND o.status = 'failed')
       OR (%(named)s AND j.closed_as = 'failed'))
ORDER BY j.id LIMIT 1
