-- Return the open jobs, the open rows and the bytes of stored files of a user, without the given job. Index:
-- job_open_owner, batch_open_owner, stored_file_owner.
SELECT (SELECT count(*) FROM tidemill.job
        WHERE owner_id = %(owner_id)s AND closed_as IS NULL AND id IS DISTINCT FROM %(job_id)s::uuid) AS open_jobs,
    (SELECT coalesce(sum(open), 0)::bigint FROM tidemill.batch
        WHERE owner_id = %(owner_id)s AND state IN ('ready', 'leased')) AS open_rows,
    (SELECT coalesce(sum(bytes), 0)::bigint FROM tidemill.stored_file WHERE owner_id = %(owner_id)s) AS stored_bytes
