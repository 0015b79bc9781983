-- Count the failures of a job that are scanned, at most a limit, and those of them that a reprocess without a reset of
-- attempts would take. Index: outcome_exception.
SELECT count(*), count(*) FILTER (WHERE is_retryable AND seq <> ALL(%(but)s::bigint[])
    AND (%(codes)s::text[] IS NULL OR code = ANY(%(codes)s)))
FROM (
    SELECT seq, error->>'code' AS code, coalesce((error->>'retryable')::boolean, false) AS is_retryable
    FROM tidemill.outcome WHERE job_id = %(job_id)s AND status = 'failed' LIMIT %(limit)s
) scanned
