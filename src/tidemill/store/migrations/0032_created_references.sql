-- The rows that a batch of an import created in referenced tables, by table.
ALTER TABLE tidemill.effect ADD COLUMN created jsonb;
