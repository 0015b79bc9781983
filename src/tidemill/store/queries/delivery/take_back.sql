-- Done items of a job go round again: their files are told of again when they come back. Index: outcome_pkey.
INSERT INTO tidemill.delivery (job_id, generated, reused)
SELECT %(job_id)s, -count(*) FILTER (WHERE NOT (result->>'reused')::boolean),
    -count(*) FILTER (WHERE (result->>'reused')::boolean)
FROM tidemill.outcome WHERE job_id = %(job_id)s AND seq = ANY(%(seqs)s)
