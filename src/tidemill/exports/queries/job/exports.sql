-- Exports with their requests and results. An export has one item.
-- Indexes: job_pkey, item_pkey, outcome_pkey.
SELECT j.id, j.idem_key, i.input, o.result, o.error
FROM tidemill.job j
LEFT JOIN tidemill.item i ON i.job_id = j.id AND i.seq = 0
LEFT JOIN tidemill.outcome o ON o.job_id = j.id AND o.seq = 0
WHERE j.id = ANY(%(ids)s)
