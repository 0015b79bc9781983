-- Transactions of a batch that lost their connection are counted, so that a row that breaks connections is found.
ALTER TABLE tidemill.batch ADD COLUMN disconnects smallint NOT NULL DEFAULT 0;
CREATE INDEX batch_disconnected ON tidemill.batch (id) WHERE disconnects > 0 AND state IN ('ready', 'leased');
