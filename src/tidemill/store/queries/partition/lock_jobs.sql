-- Every job of a range of ids, locked: none can be reopened while its rows go.
SELECT id, closed_at IS NOT NULL AND closed_at < tidemill.now() - %(age)s * interval '1 second' AS old
FROM tidemill.job WHERE id >= %(lo)s AND id < %(hi)s ORDER BY id FOR UPDATE
