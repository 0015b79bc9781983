-- Return all jobs of the owner of the run. Index: job (owner_id, updated_at, id).
SELECT id, kind FROM tidemill.job WHERE owner_id = %(owner_id)s
