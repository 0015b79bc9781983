-- Store the job of a file. Returns no row if another process was first. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET state = 'submitted', job_id = %(job_id)s, note = NULL, at = tidemill.now()
WHERE id = %(id)s AND state IN ('seen', 'taken')
RETURNING 1
