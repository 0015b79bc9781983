-- Create the schema that contains all objects of Tidemill. IF NOT EXISTS would need the privilege to create schemas even
-- if the schema exists.
DO $$ BEGIN IF to_regnamespace('tidemill') IS NULL THEN CREATE SCHEMA tidemill; END IF; END $$
