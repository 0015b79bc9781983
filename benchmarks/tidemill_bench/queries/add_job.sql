-- Creates a partly processed job. It is paused, so that no worker of this database claims it.
INSERT INTO tidemill.job (owner_id, kind, intent, ingest_done, created_at, result_columns)
VALUES (%(owner_id)s, %(kind)s, 'pause', true, tidemill.now() - interval '1 hour', '{title,price,currency}')
RETURNING id
