-- Something of it has changed: who watches jobs looks at it. Index: job_pkey.
UPDATE tidemill.job SET updated_at = tidemill.now() WHERE id = %(job_id)s
