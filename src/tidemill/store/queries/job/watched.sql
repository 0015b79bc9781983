-- Return the jobs that streams show: named jobs, and the open or recently changed jobs of some owners or of all, about
-- the newest hundred each. Index: job_pkey, job_runnable, job_owner, job_updated.
SELECT p.* FROM tidemill.job_progress p WHERE p.id = ANY(ARRAY(
    SELECT unnest(%(job_ids)s::uuid[])
    UNION
    SELECT j.id FROM unnest(%(owner_ids)s::bigint[]) AS o(id) CROSS JOIN LATERAL (
        (SELECT j.id FROM tidemill.job j WHERE j.owner_id = o.id AND j.closed_as IS NULL ORDER BY j.id DESC LIMIT %(limit)s)
        UNION
        (SELECT j.id FROM tidemill.job j WHERE j.owner_id = o.id AND j.updated_at > %(since)s
            ORDER BY j.updated_at DESC LIMIT %(limit)s)) j
    UNION
    (SELECT j.id FROM tidemill.job j WHERE %(all)s AND j.closed_as IS NULL ORDER BY j.id DESC LIMIT %(limit)s)
    UNION
    (SELECT j.id FROM tidemill.job j WHERE %(all)s AND j.updated_at > %(since)s ORDER BY j.updated_at DESC LIMIT %(limit)s)
)) ORDER BY p.updated_at, p.id
