-- Delete the ingest state of a job. Runs first in a delete, so that no further chunk is appended.
DELETE FROM tidemill.ingest WHERE job_id = %(job_id)s
