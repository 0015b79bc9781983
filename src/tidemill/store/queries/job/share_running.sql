-- Lock a running job for an ingest chunk, so that it is not paused, cancelled or closed meanwhile.
SELECT owner_id, kind FROM tidemill.job
WHERE id = %(job_id)s AND intent = 'run' AND closed_as IS NULL FOR SHARE
