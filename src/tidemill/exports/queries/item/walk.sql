-- A window of a job's items in order, with their latest fixes and their outcomes. Every subquery has both bounds:
-- without them, the planner may merge through all outcomes of the job. Index: item_pkey, item_fix_pkey, outcome_pkey.
SELECT i.seq, o.status, o.result::text, o.error::text, coalesce(o.attempts, 0), coalesce(f.input, i.input)::text
FROM tidemill.item i
LEFT JOIN tidemill.outcome o ON o.job_id = i.job_id AND o.seq = i.seq AND o.seq >= %(lo)s AND o.seq < %(hi)s
LEFT JOIN (
    SELECT DISTINCT ON (seq) seq, input FROM tidemill.item_fix
    WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s ORDER BY seq, rev DESC
) f ON f.seq = i.seq
WHERE i.job_id = %(job_id)s AND i.seq >= %(lo)s AND i.seq < %(hi)s ORDER BY i.seq
