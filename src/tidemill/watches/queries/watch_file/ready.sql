-- Files to submit, longest waiting first: claimed by an interrupted scan, unchanged for long enough, or, with markers,
-- with one of the marked paths. Index: watch_file_open.
SELECT * FROM tidemill.watch_file
WHERE watch = %(watch)s AND source = %(source)s AND state IN ('seen', 'taken') AND (state = 'taken' OR CASE
    WHEN %(marked)s::text[] IS NOT NULL THEN path = ANY(%(marked)s)
    ELSE seen_at < %(began)s AND seen_at <= tidemill.now() - %(stable_for)s * interval '1 second'
        AND size IS DISTINCT FROM 0 END)
ORDER BY state DESC, seen_at, id LIMIT %(limit)s
