-- Seconds from the first claim of a job to its close; null while it is open. No index covers closed batches: this runs
-- once, after the close.
SELECT extract(epoch FROM j.closed_at - (SELECT min(b.since) FROM tidemill.batch b WHERE b.job_id = j.id))::float8
FROM tidemill.job j WHERE j.id = %(job_id)s
