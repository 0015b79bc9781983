-- Whether a job is closed; cheap enough for polling. Index: job_pkey.
SELECT closed_as IS NOT NULL FROM tidemill.job WHERE id = %(job_id)s
