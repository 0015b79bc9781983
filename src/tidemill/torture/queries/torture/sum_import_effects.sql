-- Sum the rows that the batches of an import wrote. Index: effect_job.
SELECT coalesce(sum(inserted), 0)::bigint AS inserted, coalesce(sum(updated), 0)::bigint AS updated
FROM tidemill.effect WHERE job_id = %(job_id)s
