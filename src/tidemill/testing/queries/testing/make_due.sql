-- Make batches that wait for a retry, or after a lost connection, due now. Batches that became due in the meantime count too.
UPDATE tidemill.batch b SET not_before = least(b.not_before, tidemill.now())
FROM tidemill.job j WHERE j.id = b.job_id AND j.intent = 'run' AND b.state = 'ready' AND (b.retrying OR b.not_before > b.since + interval '10 ms')
  AND (%(kinds)s::text[] IS NULL OR b.kind = ANY(%(kinds)s))
