-- What the files of a distribution need to know of it. Index: job_pkey.
SELECT key, created_at AT TIME ZONE 'UTC', params FROM tidemill.job WHERE id = %(job_id)s
