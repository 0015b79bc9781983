-- Add the next revision of an item's input. Requires the lock of its outcome, so that two revisions cannot get the same
-- number. Index: item_fix_pkey.
INSERT INTO tidemill.item_fix (job_id, seq, rev, input, by)
SELECT %(job_id)s, %(seq)s, coalesce(max(rev), 0) + 1, %(input)s::text::json, %(by)s
FROM tidemill.item_fix WHERE job_id = %(job_id)s AND seq = %(seq)s
RETURNING rev
