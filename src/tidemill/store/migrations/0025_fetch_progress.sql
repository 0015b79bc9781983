-- Sources at URLs are downloaded before they are read, so that a slow server does not delay the reading of other files.
ALTER TABLE tidemill.ingest ADD COLUMN fetch_pending boolean NOT NULL DEFAULT false,
    ADD COLUMN fetched_bytes bigint, ADD COLUMN fetch_total_bytes bigint;
CREATE INDEX ingest_fetch ON tidemill.ingest (job_id) WHERE fetch_pending;
UPDATE tidemill.ingest g SET fetch_pending = true FROM tidemill.job j
WHERE j.id = g.job_id AND j.closed_as IS NULL AND NOT j.ingest_done AND g.next_seq = 0 AND j.source ? 'url';
