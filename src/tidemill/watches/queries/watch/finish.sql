-- Store the result of a scan and release the lease. settle_at, the next check of the jobs of files, depends on the age
-- of the oldest file that waits for its job. Index: watch_pkey, watch_file_open.
UPDATE tidemill.watch SET lease_id = NULL, lease_until = NULL, worker = NULL,
    problem = CASE WHEN %(looked)s OR %(problem)s::text IS NOT NULL THEN %(problem)s ELSE problem END,
    scanned_at = CASE WHEN %(looked)s THEN tidemill.now() ELSE scanned_at END,
    found = CASE WHEN %(looked)s THEN %(found)s ELSE found END,
    submitted = CASE WHEN %(looked)s THEN %(submitted)s ELSE submitted END,
    failures = CASE WHEN NOT %(looked)s THEN failures WHEN %(problem)s::text IS NULL THEN 0 ELSE failures + 1 END,
    due_at = CASE WHEN %(delay)s::float8 IS NULL THEN due_at ELSE tidemill.now() + %(delay)s * interval '1 second' END,
    settle_at = coalesce((
        SELECT tidemill.now() + least(greatest(extract(epoch FROM tidemill.now() - min(at)) / 4, %(least)s), %(most)s)
            * interval '1 second'
        FROM tidemill.watch_file WHERE watch = %(name)s AND state IN ('submitted', 'persisted', 'rejected')
    ), 'infinity')
WHERE name = %(name)s AND lease_id = %(lease_id)s
RETURNING 1
