-- List the owners of dead letters from an owner on, with one index lookup per owner instead of a scan. Index:
-- outcome_dead_letter.
WITH RECURSIVE owner AS (
    (SELECT o.owner_id FROM tidemill.outcome o
     WHERE o.status = 'failed' AND o.dismissed_at IS NULL AND o.owner_id >= %(owner_id)s
     ORDER BY o.owner_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.owner_id FROM tidemill.outcome o
            WHERE o.status = 'failed' AND o.dismissed_at IS NULL
              AND o.owner_id > owner.owner_id
            ORDER BY o.owner_id LIMIT 1)
    FROM owner WHERE owner.owner_id IS NOT NULL
)
SELECT owner_id FROM owner WHERE owner_id IS NOT NULL LIMIT %(limit)s
