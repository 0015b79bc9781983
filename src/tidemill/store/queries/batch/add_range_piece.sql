-- Add one part of a split range and count its open items. Adds nothing if no item is open. Index: outcome_pkey, bounded
-- on both sides.
INSERT INTO tidemill.batch (job_id, owner_id, kind, lo, hi, open, isolated, crashes, disconnects, not_before)
SELECT %(job_id)s, %(owner_id)s, %(kind)s, %(lo)s, %(hi)s, n, %(isolated)s, %(crashes)s, %(disconnects)s,
    tidemill.now() + %(delay)s * interval '1 second'
FROM (SELECT %(hi)s::bigint - %(lo)s::bigint - count(*) AS n FROM tidemill.outcome
      WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s) counted
WHERE n > 0
