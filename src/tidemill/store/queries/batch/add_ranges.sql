-- The ready batches of freshly copied items, cut where the caller says: by rows and by bytes. Held ones are due only
-- when the whole source is read.
INSERT INTO tidemill.batch (job_id, owner_id, kind, lo, hi, open, not_before)
SELECT %(job_id)s, %(owner_id)s, %(kind)s, cut.lo, cut.hi, cut.hi - cut.lo,
    CASE WHEN %(held)s THEN timestamptz '2999-01-01' ELSE tidemill.now() END
FROM unnest(%(los)s::bigint[], %(his)s::bigint[]) AS cut(lo, hi)
