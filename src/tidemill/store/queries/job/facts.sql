-- What every event about a job says. Index: job_pkey.
SELECT kind, request_id, traceparent FROM tidemill.job WHERE id = %(job_id)s
