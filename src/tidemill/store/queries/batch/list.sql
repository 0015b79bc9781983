-- List the batches of a job, newest first. Index: batch_job.
SELECT id, CASE WHEN seqs IS NULL THEN 'range' ELSE 'list' END AS shape, state, lo, hi,
    open + done + not_found + skipped + failed + cancelled + retried AS size, open,
    json_build_object('done', done, 'not_found', not_found, 'skipped', skipped, 'failed', failed, 'cancelled', cancelled,
        'retried', retried) AS tallies,
    coalesce(codes, '{}') AS codes, since, closed_at, not_before, worker, isolated, crashes, losses,
    CASE WHEN state = 'done' THEN round(extract(epoch FROM closed_at - since) * 1000)::bigint END AS duration_ms
FROM tidemill.batch WHERE job_id = %(job_id)s AND id < %(before)s ORDER BY id DESC LIMIT %(limit)s
