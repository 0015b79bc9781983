-- Closed: nothing is open and nothing will be, until a reprocess.
UPDATE tidemill.job SET closed_as = %(closed_as)s, closed_at = tidemill.now(), updated_at = tidemill.now()
WHERE id = %(job_id)s
RETURNING closed_at
