-- All jobs of an owner. Index: job_of_owner.
SELECT id FROM tidemill.job WHERE owner_id = %(owner_id)s ORDER BY id
