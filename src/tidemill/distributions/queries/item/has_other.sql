-- Whether another item of a job has this input; a fixed item counts with its latest fix.
-- Index: item_pkey, item_fix_pkey.
SELECT EXISTS (
    SELECT 1 FROM tidemill.item i
    WHERE i.job_id = %(job_id)s AND i.seq <> %(seq)s AND i.input::jsonb = %(input)s::jsonb
      AND NOT EXISTS (SELECT 1 FROM tidemill.item_fix f WHERE f.job_id = i.job_id AND f.seq = i.seq)
) OR EXISTS (
    SELECT 1 FROM tidemill.item_fix f
    WHERE f.job_id = %(job_id)s AND f.seq <> %(seq)s AND f.input::jsonb = %(input)s::jsonb
      AND NOT EXISTS (SELECT 1 FROM tidemill.item_fix g WHERE g.job_id = f.job_id AND g.seq = f.seq AND g.rev > f.rev)
)
