-- Whether a hint for a job is worth anything: it is there, open, and to run. Index: job_pkey.
SELECT closed_as IS NULL AND intent = 'run' FROM tidemill.job WHERE id = %(job_id)s
