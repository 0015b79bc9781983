-- Whether rows of a job are still to be tried for the first time, and whether more than one of its batches goes round
-- again. Index: batch_open_job.
SELECT NOT j.ingest_done OR EXISTS (
        SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state IN ('ready', 'leased') AND NOT b.retrying),
    1 < (SELECT count(*) FROM (
        SELECT FROM tidemill.batch b WHERE b.job_id = j.id AND b.state IN ('ready', 'leased') AND b.retrying LIMIT 2) AS few)
FROM tidemill.job j WHERE j.id = %(job_id)s
