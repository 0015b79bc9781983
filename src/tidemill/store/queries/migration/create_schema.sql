-- Everything of Tidemill lives here, and nothing else does.
CREATE SCHEMA IF NOT EXISTS tidemill
