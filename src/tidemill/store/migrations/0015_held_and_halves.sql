-- Whether the rows of a source must wait until all of it is read: what is sent round again meanwhile must wait too.
ALTER TABLE tidemill.ingest ADD COLUMN held boolean NOT NULL DEFAULT false;

UPDATE tidemill.ingest SET held = true
WHERE job_id IN (SELECT job_id FROM tidemill.batch WHERE not_before = timestamptz '2999-01-01');

-- One half of a list that its handler could not take whole: merged with the other, it would be what it was.
ALTER TABLE tidemill.batch ADD COLUMN half boolean NOT NULL DEFAULT false;
