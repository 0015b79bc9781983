-- Remove the effects and the imported rows of deleted jobs.
WITH effects AS (DELETE FROM tidemill_torture.effect WHERE job_id = ANY(%(job_ids)s))
DELETE FROM tidemill_torture.target
