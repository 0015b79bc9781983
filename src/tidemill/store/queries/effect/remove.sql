-- Delete the effects of a deleted job. Index: effect_job.
DELETE FROM tidemill.effect WHERE job_id = %(job_id)s
