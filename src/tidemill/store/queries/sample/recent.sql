-- What time it is, and the newest samples of a job; without any, the time alone. Index: job_sample_pkey backwards.
SELECT clock.now, s.at, s.settled, s.failed FROM (SELECT tidemill.now() AS now) clock
LEFT JOIN LATERAL (
    SELECT at, settled, failed FROM tidemill.job_sample WHERE job_id = %(job_id)s ORDER BY at DESC LIMIT %(limit)s
) s ON true
ORDER BY s.at DESC
