-- Open batches, one owner's, from a place on, oldest change first. At most `budget` of them are looked at, however few
-- match; the one behind the last of these comes too, as the end. Index: batch_open_owner.
SELECT id, job_id, since, items, width, n > %(budget)s AS is_end FROM (
    SELECT *, row_number() OVER (ORDER BY owner_id, since, id) AS n FROM (
        SELECT owner_id, id, job_id, since, kind, open AS items, CASE WHEN seqs IS NULL THEN hi - lo ELSE open END AS width,
            CASE WHEN state = 'leased' THEN 'processing' WHEN retrying THEN 'retry_wait' ELSE 'pending' END AS status
        FROM tidemill.batch
        -- Rows are compared whole: else batch_open_all may be walked past the batches of everybody else.
        WHERE state IN ('ready', 'leased') AND (owner_id, since, id) >= (%(owner_id)s, %(since)s, %(batch)s)
          AND (owner_id, since) < (%(owner_id)s, %(until)s)
        ORDER BY owner_id, since, id LIMIT %(budget)s + 1
    ) seen
) numbered
WHERE n > %(budget)s OR (status = ANY(%(statuses)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s))
ORDER BY owner_id, since, id LIMIT %(limit)s
