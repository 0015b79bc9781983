-- Count dead letters by error code from stored counters, without reading items. `newest` is the last change of a job,
-- or of a batch that is not folded yet, with such failures. Index: batch_unfolded.
SELECT code, sum(n)::bigint AS count, count(DISTINCT job_id) AS jobs, max(at) AS newest FROM (
    SELECT j.id AS job_id, c.key AS code, c.value::bigint AS n, coalesce(j.closed_at, j.updated_at) AS at
    FROM tidemill.job j JOIN tidemill.job_tally t ON t.job_id = j.id CROSS JOIN LATERAL jsonb_each_text(t.codes) AS c
    WHERE t.codes <> '{}' AND j.purged_at IS NULL AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s)
      AND (%(kind)s::text IS NULL OR j.kind = %(kind)s) AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s)
    UNION ALL
    SELECT b.job_id, c.key, c.value::bigint, coalesce(b.closed_at, b.since)
    FROM tidemill.job j JOIN tidemill.batch b ON b.job_id = j.id AND NOT b.folded AND b.codes IS NOT NULL
    CROSS JOIN LATERAL jsonb_each_text(b.codes) AS c
    WHERE j.closed_as IS NULL AND j.purged_at IS NULL AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s)
      AND (%(kind)s::text IS NULL OR j.kind = %(kind)s) AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s)
) kept
GROUP BY code HAVING sum(n) > 0 ORDER BY 2 DESC, code LIMIT %(limit)s
