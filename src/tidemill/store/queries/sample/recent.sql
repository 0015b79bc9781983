-- Return the current time and the newest samples of a job; without samples, only the time. Index: job_sample_pkey
-- backwards.
SELECT clock.now, s.at, s.settled, s.failed FROM (SELECT tidemill.now() AS now) clock
LEFT JOIN LATERAL (
    SELECT at, settled, failed FROM tidemill.job_sample WHERE job_id = %(job_id)s ORDER BY at DESC LIMIT %(limit)s
) s ON true
ORDER BY s.at DESC
