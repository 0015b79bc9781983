-- Count failures by category from stored counters, without reading items. Dismissed items are included. Index:
-- batch_unfolded.
SELECT category, sum(n)::bigint AS items FROM (
    SELECT tidemill.failure_category(j.kind, j.params, c.key) AS category, c.value::bigint AS n
    FROM tidemill.job j JOIN tidemill.job_tally t ON t.job_id = j.id CROSS JOIN LATERAL jsonb_each_text(t.codes) AS c
    WHERE t.codes <> '{}' AND j.purged_at IS NULL AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s)
      AND (%(kind)s::text IS NULL OR j.kind = %(kind)s) AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s)
    UNION ALL
    SELECT tidemill.failure_category(j.kind, j.params, c.key), c.value::bigint
    FROM tidemill.job j JOIN tidemill.batch b ON b.job_id = j.id AND NOT b.folded AND b.codes IS NOT NULL
    CROSS JOIN LATERAL jsonb_each_text(b.codes) AS c
    WHERE j.closed_as IS NULL AND j.purged_at IS NULL AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s)
      AND (%(kind)s::text IS NULL OR j.kind = %(kind)s) AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s)
) counted
GROUP BY category
