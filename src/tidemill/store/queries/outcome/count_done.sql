-- Count the done items of a job that have an outcome. In a sparse job these were attempted more than once. Index:
-- outcome_pkey.
SELECT count(*) FROM tidemill.outcome WHERE job_id = %(job_id)s AND status = 'done'
