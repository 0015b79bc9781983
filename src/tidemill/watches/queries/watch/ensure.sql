-- Create the missing rows of declared watches. Index: watch_pkey.
INSERT INTO tidemill.watch (name) SELECT unnest(%(names)s::text[]) ON CONFLICT (name) DO NOTHING
