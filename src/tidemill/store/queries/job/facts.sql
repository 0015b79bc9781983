-- Return the fields that every event about a job has. Index: job_pkey.
SELECT kind, request_id, traceparent FROM tidemill.job WHERE id = %(job_id)s
