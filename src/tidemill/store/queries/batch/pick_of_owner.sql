-- List open batches of an owner from a cursor on, oldest change first. Reads at most `budget` batches, even if few
-- match; the batch after these marks the end of the scan (is_end). Index: batch_open_owner.
SELECT id, job_id, since, items, width, n > %(budget)s AS is_end FROM (
    SELECT *, row_number() OVER (ORDER BY owner_id, since, id) AS n FROM (
        SELECT owner_id, id, job_id, since, kind, open AS items, CASE WHEN seqs IS NULL THEN hi - lo ELSE open END AS width,
            CASE WHEN state = 'leased' THEN 'processing' WHEN retrying THEN 'retry_wait' ELSE 'pending' END AS status
        FROM tidemill.batch
        -- Row comparison keeps the planner from scanning batch_open_all past the batches of other owners.
        WHERE state IN ('ready', 'leased') AND (owner_id, since, id) >= (%(owner_id)s, %(since)s, %(batch)s)
          AND (owner_id, since) < (%(owner_id)s, %(until)s)
        ORDER BY owner_id, since, id LIMIT %(budget)s + 1
    ) seen
) numbered
WHERE n > %(budget)s OR (status = ANY(%(statuses)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s))
ORDER BY owner_id, since, id LIMIT %(limit)s
