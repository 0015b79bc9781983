-- Remember a deleted job, so that maintenance deletes its items and outcomes in chunks.
INSERT INTO tidemill.deleted_job (job_id) VALUES (%(job_id)s) ON CONFLICT DO NOTHING
