-- Lock every job in a range of ids, so that none is reopened while its rows are dropped.
SELECT id, closed_at IS NOT NULL AND closed_at < tidemill.now() - %(age)s * interval '1 second' AS old
FROM tidemill.job WHERE id >= %(lo)s AND id < %(hi)s ORDER BY id FOR UPDATE
