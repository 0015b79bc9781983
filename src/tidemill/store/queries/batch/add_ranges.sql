-- The ready batches of freshly copied items, cut to about claim size.
INSERT INTO tidemill.batch (job_id, owner_id, kind, lo, hi, open)
SELECT %(job_id)s, %(owner_id)s, %(kind)s, lo, least(lo + %(size)s, %(hi)s), least(lo + %(size)s, %(hi)s) - lo
FROM generate_series(%(lo)s::bigint, %(hi)s::bigint - 1, %(size)s) AS lo
