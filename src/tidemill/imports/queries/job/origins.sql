-- The sources of jobs, and the times when their first rows were read. Index: job_pkey, item_pkey.
SELECT j.id, j.source, j.idem_key, (SELECT i.at FROM tidemill.item i WHERE i.job_id = j.id AND i.seq = 0) AS started_at
FROM tidemill.job j WHERE j.id = ANY(%(ids)s)
