-- The effects of a job on its target. Index: effect_job.
SELECT coalesce(sum(inserted), 0)::bigint AS inserted, coalesce(sum(updated), 0)::bigint AS updated,
    coalesce(sum(unchanged), 0)::bigint AS unchanged FROM tidemill.effect WHERE job_id = %(job_id)s
