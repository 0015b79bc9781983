-- Create the schema that contains all objects of Tidemill.
CREATE SCHEMA IF NOT EXISTS tidemill
