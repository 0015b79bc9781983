-- The columns of a job's results; of a job without any, also its first input that could be read: its keys are the
-- columns then. Index: job_pkey, item_pkey.
SELECT j.result_columns, CASE WHEN j.result_columns = '{}' THEN (
        SELECT i.input::text FROM tidemill.item i WHERE i.job_id = j.id AND i.seq < 100 AND i.defect IS NULL
        ORDER BY i.seq LIMIT 1
    ) END AS first_input
FROM tidemill.job j WHERE j.id = %(job_id)s
