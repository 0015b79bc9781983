-- The sources of jobs. Index: job_pkey.
SELECT j.id, j.source, j.idem_key FROM tidemill.job j WHERE j.id = ANY(%(ids)s)
