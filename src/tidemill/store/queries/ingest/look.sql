-- Explain why the fence of a chunk matched no row.
SELECT next_seq, lease_id FROM tidemill.ingest WHERE job_id = %(job_id)s
