-- Lease one watch that is due. is_due: list its source; otherwise only check the jobs of its files.
-- Sequential scan of a small table. SKIP LOCKED: concurrent workers lease different watches.
UPDATE tidemill.watch w SET lease_id = %(lease_id)s, worker = %(worker)s,
    lease_until = tidemill.now() + %(seconds)s * interval '1 second'
FROM (
    SELECT name, due_at <= tidemill.now() AND name = ANY(%(scheduled)s) AS is_due FROM tidemill.watch
    WHERE name = ANY(%(names)s) AND (lease_until IS NULL OR lease_until < tidemill.now())
        AND ((due_at <= tidemill.now() AND name = ANY(%(scheduled)s)) OR settle_at <= tidemill.now())
    ORDER BY least(due_at, settle_at) LIMIT 1 FOR UPDATE SKIP LOCKED
) due
WHERE w.name = due.name
RETURNING w.name, due.is_due, tidemill.now(), w.failures
