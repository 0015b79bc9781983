-- Remember the columns of the file that a watch imported. Index: watch_pkey.
UPDATE tidemill.watch SET columns = %(columns)s::jsonb
WHERE name = %(name)s AND columns IS DISTINCT FROM %(columns)s::jsonb
