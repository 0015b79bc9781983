-- The right to one watch whose turn it is: to look at its source if it is scheduled, or only at the jobs of its files.
-- Few rows, read whole. SKIP LOCKED: whoever comes at the same time takes another.
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
