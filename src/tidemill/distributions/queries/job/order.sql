-- Properties of a distribution's job that determine its files, and its owner. Index: job_pkey.
SELECT key, created_at AT TIME ZONE 'UTC', params, owner_id FROM tidemill.job WHERE id = %(job_id)s
