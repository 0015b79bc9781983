-- Find a job by its key or a prefix of its id. Index: job_key_key, job_pkey.
SELECT id FROM tidemill.job WHERE key = %(text)s
UNION ALL
(SELECT id FROM tidemill.job WHERE id BETWEEN %(lo)s AND %(hi)s ORDER BY id LIMIT 2)
