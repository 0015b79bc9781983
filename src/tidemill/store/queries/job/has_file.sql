-- Whether a stored file belongs to a job of somebody: it was submitted with it, or made by it. Index: job_file, job_pkey.
SELECT EXISTS (
    SELECT 1 FROM tidemill.job WHERE file_id = %(file_id)s AND (%(owner_id)s::bigint IS NULL OR owner_id = %(owner_id)s)
) OR EXISTS (
    SELECT 1 FROM tidemill.job WHERE id = %(file_id)s::uuid AND kind = 'tidemill.export'
      AND (%(owner_id)s::bigint IS NULL OR owner_id = %(owner_id)s)
)
