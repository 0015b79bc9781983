-- Where in its file a record stood. NULL: on the line that its number says, from the first line of all on.
ALTER TABLE tidemill.item ADD COLUMN line bigint;
ALTER TABLE tidemill.ingest ADD COLUMN first_line integer NOT NULL DEFAULT 1;
