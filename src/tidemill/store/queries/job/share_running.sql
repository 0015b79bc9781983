-- Held by an ingest chunk: while it is, nobody can pause, cancel or close the job.
SELECT owner_id, kind FROM tidemill.job
WHERE id = %(job_id)s AND intent = 'run' AND closed_as IS NULL FOR SHARE
