-- Add the ready batches of newly copied items. The caller chooses the ranges by number of rows and bytes.
INSERT INTO tidemill.batch (job_id, owner_id, kind, lo, hi, open)
SELECT %(job_id)s, %(owner_id)s, %(kind)s, cut.lo, cut.hi, cut.hi - cut.lo
FROM unnest(%(los)s::bigint[], %(his)s::bigint[]) AS cut(lo, hi)
