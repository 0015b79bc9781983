-- Whether any job is not closed. Index: job_runnable.
SELECT 1 FROM tidemill.job WHERE closed_as IS NULL LIMIT 1
