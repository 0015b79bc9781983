-- The columns of the last file that a watch imported, if any. Index: watch_pkey.
SELECT columns FROM tidemill.watch WHERE name = %(name)s
