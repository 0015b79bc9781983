-- With its job; first of a delete, so that no chunk comes after.
DELETE FROM tidemill.ingest WHERE job_id = %(job_id)s
