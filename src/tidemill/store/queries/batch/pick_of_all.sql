-- List open batches of all owners from a cursor on, oldest change first. Reads at most `budget` batches, even if few
-- match; the batch after these marks the end of the scan (is_end). Index: batch_open_all.
SELECT id, job_id, since, items, width, n > %(budget)s AS is_end FROM (
    SELECT *, row_number() OVER (ORDER BY since, id) AS n FROM (
        SELECT id, job_id, since, kind, open AS items, CASE WHEN seqs IS NULL THEN hi - lo ELSE open END AS width,
            CASE WHEN state = 'leased' THEN 'processing' WHEN retrying THEN 'retry_wait' ELSE 'pending' END AS status
        FROM tidemill.batch
        WHERE state IN ('ready', 'leased') AND (since, id) >= (%(since)s, %(batch)s)
          AND since < %(until)s
        ORDER BY since, id LIMIT %(budget)s + 1
    ) seen
) numbered
WHERE n > %(budget)s OR (status = ANY(%(statuses)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s))
ORDER BY since, id LIMIT %(limit)s
