-- Its items and outcomes are removed later, in chunks.
INSERT INTO tidemill.deleted_job (job_id) VALUES (%(job_id)s) ON CONFLICT DO NOTHING
