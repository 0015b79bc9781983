-- 5. Counters equal rows for every status. Items of cancelled ranges and done items of sparse jobs have no rows.
SELECT p.id AS job_id, p.done, c.done AS done_rows, p.failed, c.failed AS failed_rows, p.not_found, p.skipped,
    p.cancelled, c.cancelled + r.n AS cancelled_rows
FROM tidemill.job_progress p
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE status = 'done') AS done, count(*) FILTER (WHERE status = 'failed') AS failed,
        count(*) FILTER (WHERE status = 'not_found') AS not_found,
        count(*) FILTER (WHERE status = 'skipped') AS skipped, count(*) FILTER (WHERE status = 'cancelled') AS cancelled
    FROM tidemill.outcome WHERE job_id = p.id
) c
CROSS JOIN LATERAL (
    SELECT coalesce(sum(cancelled), 0) AS n FROM tidemill.batch
    WHERE job_id = p.id AND seqs IS NULL AND state = 'cancelled'
) r
WHERE p.purged_at IS NULL AND (%(job_id)s::uuid IS NULL OR p.id = %(job_id)s)
  AND ((NOT p.sparse AND p.done <> c.done) OR p.failed <> c.failed OR p.not_found <> c.not_found
       OR p.skipped <> c.skipped OR p.cancelled <> c.cancelled + r.n) LIMIT 10
