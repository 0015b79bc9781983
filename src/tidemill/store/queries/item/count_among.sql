-- Count the given items that match. Done items without an outcome row cannot be reprocessed. Index: item_pkey,
-- outcome_pkey, batch_open_list, batch_cover.
SELECT count(*) FROM unnest(%(seqs)s::bigint[]) AS asked(seq)
CROSS JOIN LATERAL (
    SELECT v.status, v.attempts, v.error->>'code' AS code, coalesce((v.error->>'retryable')::boolean, false) AS is_retryable
    FROM tidemill.item_status v
    WHERE v.job_id = %(job_id)s AND v.seq = asked.seq LIMIT 1
) found
WHERE (%(statuses)s::text[] IS NULL OR found.status = ANY(%(statuses)s))
  AND (%(codes)s::text[] IS NULL OR (found.status = 'failed' AND found.code = ANY(%(codes)s)))
  AND NOT (%(again)s AND found.status = 'done' AND found.attempts = 0)
  AND NOT (%(retryable_only)s AND found.status = 'failed' AND NOT found.is_retryable)
