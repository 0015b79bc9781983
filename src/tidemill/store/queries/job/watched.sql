-- What a stream shows: named jobs, and for whole tabs the jobs of some owners (all, without a list) that are open or
-- changed since a moment. Index: job_pkey, job_runnable, job_owner.
SELECT p.*, tidemill.now() AS seen_at FROM tidemill.job_progress p WHERE p.id = ANY(ARRAY(
    SELECT unnest(%(job_ids)s::uuid[])
    UNION
    (SELECT j.id FROM tidemill.job j WHERE %(tabs)s AND j.closed_as IS NULL
        AND (%(owner_ids)s::bigint[] IS NULL OR j.owner_id = ANY(%(owner_ids)s)) ORDER BY j.id DESC LIMIT %(limit)s)
    UNION
    (SELECT j.id FROM tidemill.job j WHERE %(tabs)s AND j.updated_at > %(since)s
        AND (%(owner_ids)s::bigint[] IS NULL OR j.owner_id = ANY(%(owner_ids)s)) ORDER BY j.updated_at DESC LIMIT %(limit)s)
)) ORDER BY p.id
