-- The field names of the failed rows of a job, for files in which each row has its own. Index: outcome_pkey, item_pkey.
SELECT DISTINCT k.name FROM tidemill.outcome o
CROSS JOIN LATERAL (SELECT i.input FROM tidemill.item i WHERE i.job_id = o.job_id AND i.seq = o.seq LIMIT 1) i
LEFT JOIN LATERAL (
    SELECT f.input FROM tidemill.item_fix f WHERE f.job_id = o.job_id AND f.seq = o.seq ORDER BY f.rev DESC LIMIT 1
) f ON true
CROSS JOIN LATERAL json_object_keys(
    CASE WHEN json_typeof(coalesce(f.input, i.input)) = 'object' THEN coalesce(f.input, i.input) ELSE '{}' END) AS k(name)
WHERE o.job_id = %(job_id)s AND o.status = 'failed' ORDER BY k.name LIMIT %(most)s
