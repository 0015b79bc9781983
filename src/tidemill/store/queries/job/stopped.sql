-- Return those of these jobs that may not run now: paused, cancelled, failed or deleted. Index: job_pkey.
SELECT wanted.id FROM unnest(%(job_ids)s::uuid[]) AS wanted(id)
WHERE NOT EXISTS (SELECT FROM tidemill.job j WHERE j.id = wanted.id AND j.intent = 'run')
