-- As owners_of_dead_letters, for dismissed items. Index: outcome_dismissed.
WITH RECURSIVE owner AS (
    (SELECT o.owner_id FROM tidemill.outcome o
     WHERE o.dismissed_at IS NOT NULL AND o.owner_id >= %(owner_id)s
     ORDER BY o.owner_id LIMIT 1)
    UNION ALL
    SELECT (SELECT o.owner_id FROM tidemill.outcome o
            WHERE o.dismissed_at IS NOT NULL
              AND o.owner_id > owner.owner_id
            ORDER BY o.owner_id LIMIT 1)
    FROM owner WHERE owner.owner_id IS NOT NULL
)
SELECT owner_id FROM owner WHERE owner_id IS NOT NULL LIMIT %(limit)s
