-- How many items of a job succeeded and have an outcome: of a sparse job, those that were tried more than once.
-- Index: outcome_pkey.
SELECT count(*) FROM tidemill.outcome WHERE job_id = %(job_id)s AND status = 'done'
