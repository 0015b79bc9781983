-- Each attempt at an export has a file of its own, so that a late one cannot replace the file of its successor. Whose
-- they are is kept with them: they go with their job, or when they expire.
ALTER TABLE tidemill.unneeded_file ADD made_by uuid;
UPDATE tidemill.unneeded_file f SET made_by = j.id
FROM tidemill.job j WHERE j.kind = 'tidemill.export' AND f.file_id = replace(j.id::text, '-', '');
CREATE INDEX unneeded_file_made_by ON tidemill.unneeded_file (made_by) WHERE made_by IS NOT NULL;
