-- Whether a stored file belongs to a job of an owner, as its input or as its output that has not expired.
-- Index: job_file, unneeded_file_pkey, job_pkey.
SELECT EXISTS (
    SELECT 1 FROM tidemill.job WHERE file_id = %(file_id)s AND (%(owner_id)s::bigint IS NULL OR owner_id = %(owner_id)s)
) OR EXISTS (
    SELECT 1 FROM tidemill.unneeded_file f JOIN tidemill.job j ON j.id = f.made_by
    WHERE f.file_id = %(file_id)s AND f.at > tidemill.now()
      AND (%(owner_id)s::bigint IS NULL OR j.owner_id = %(owner_id)s)
)
