-- A page of a watch's files, most recently changed first. Index: watch_file_newest, job_pkey.
SELECT f.*, j.key AS job_key FROM tidemill.watch_file f LEFT JOIN tidemill.job j ON j.id = f.job_id
WHERE f.watch = %(watch)s AND (f.at, f.id) < (%(at)s, %(id)s)
ORDER BY f.at DESC, f.id DESC LIMIT %(limit)s
