-- The results of the handler. Index: outcome_pkey.
SELECT result FROM tidemill.outcome WHERE job_id = %(job_id)s ORDER BY seq
