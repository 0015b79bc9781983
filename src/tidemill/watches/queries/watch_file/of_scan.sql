-- The files that a scan reports: changed since it began, or waiting. Index: watch_file_newest, watch_file_open.
SELECT * FROM (
    (SELECT * FROM tidemill.watch_file WHERE watch = %(watch)s AND at >= %(began)s ORDER BY at DESC, id DESC LIMIT %(limit)s)
    UNION
    (SELECT * FROM tidemill.watch_file WHERE watch = %(watch)s
        AND state IN ('seen', 'taken', 'submitted', 'persisted', 'rejected') ORDER BY id LIMIT %(limit)s)
) f ORDER BY at DESC, id DESC LIMIT %(limit)s
