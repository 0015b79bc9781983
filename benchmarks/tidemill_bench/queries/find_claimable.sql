-- Finds a batch that a worker could claim now, and that no other worker is claiming.
SELECT b.id FROM tidemill.batch b JOIN tidemill.job j ON j.id = b.job_id
WHERE b.state = 'ready' AND b.not_before <= tidemill.now() AND j.intent = 'run' AND j.closed_as IS NULL
LIMIT 1 FOR UPDATE OF b SKIP LOCKED
