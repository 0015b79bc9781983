-- Count the settled items and the open items of the owner of the run. Paused jobs do not count as open.
SELECT coalesce(sum(done + not_found + skipped + failed + cancelled + retried), 0)::bigint AS settled,
    coalesce(sum(pending + processing + retry_wait) FILTER (WHERE intent = 'run'), 0)::bigint AS open
FROM tidemill.job_progress WHERE owner_id = %(owner_id)s
