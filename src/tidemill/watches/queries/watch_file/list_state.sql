-- As list.sql, for files in one state. A separate statement, so that it uses its own index. Index: watch_file_state,
-- job_pkey.
SELECT f.*, j.key AS job_key FROM tidemill.watch_file f LEFT JOIN tidemill.job j ON j.id = f.job_id
WHERE f.watch = %(watch)s AND f.state = %(state)s AND (f.at, f.id) < (%(at)s, %(id)s)
ORDER BY f.at DESC, f.id DESC LIMIT %(limit)s
