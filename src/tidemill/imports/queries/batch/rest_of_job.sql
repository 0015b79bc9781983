-- Whether a job has rows without an attempt, and whether more than one of its batches is retrying.
-- Index: batch_open_job.
SELECT NOT j.ingest_done OR EXISTS (
        SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state IN ('ready', 'leased') AND NOT b.retrying),
    1 < (SELECT count(*) FROM (
        SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state IN ('ready', 'leased') AND b.retrying LIMIT 2) AS few)
FROM tidemill.job j WHERE j.id = %(job_id)s
