-- Whether a job has rows without an attempt, whether more than one of its batches is retrying, and whether it wrote
-- rows recently. Indexes: batch_open_job, effect_job.
SELECT NOT j.ingest_done OR EXISTS (
        SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state IN ('ready', 'leased') AND NOT b.retrying),
    1 < (SELECT count(*) FROM (
        SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state IN ('ready', 'leased') AND b.retrying LIMIT 2) AS few),
    EXISTS (SELECT FROM tidemill.effect e
            WHERE e.job_id = j.id AND e.at > tidemill.now() - make_interval(secs => %(recent_s)s))
FROM tidemill.job j WHERE j.id = %(job_id)s
