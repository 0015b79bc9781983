-- Delete a chunk of the outcomes of a deleted job. Index: outcome_pkey.
DELETE FROM tidemill.outcome WHERE job_id = %(job_id)s AND seq = ANY(ARRAY(
    SELECT seq FROM tidemill.outcome WHERE job_id = %(job_id)s ORDER BY seq LIMIT %(limit)s))
