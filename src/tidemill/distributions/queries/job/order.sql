-- Properties of a distribution's job that determine its files. Index: job_pkey.
SELECT key, created_at AT TIME ZONE 'UTC', params FROM tidemill.job WHERE id = %(job_id)s
