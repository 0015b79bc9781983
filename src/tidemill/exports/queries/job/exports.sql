-- Exports with their requests and results. An export has one item.
-- Indexes: job_pkey, item_pkey, outcome_pkey, batch_job.
SELECT j.id, j.idem_key, i.input, o.result, o.error,
       (SELECT min(b.since) FROM tidemill.batch b WHERE b.job_id = j.id AND b.state <> 'ready') AS started_at
FROM tidemill.job j
LEFT JOIN tidemill.item i ON i.job_id = j.id AND i.seq = 0
LEFT JOIN tidemill.outcome o ON o.job_id = j.id AND o.seq = 0
WHERE j.id = ANY(%(ids)s)
