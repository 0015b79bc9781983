-- Claim a file before it is fetched. Returns no row if it was submitted already. Index: watch_file_pkey.
UPDATE tidemill.watch_file SET state = 'taken', owner_id = %(owner_id)s, file_id = %(file_id)s, note = NULL,
    at = tidemill.now()
WHERE id = %(id)s AND state IN ('seen', 'taken')
RETURNING 1
