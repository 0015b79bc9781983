-- List the fixes of an item, with the input of the newest, and the rule of a repair that made the fix. Index:
-- item_fix_pkey, operation_pkey.
SELECT f.rev, f.by, u.name AS by_name, f.at, f.operation_id, o.predicate->'rule' AS rule,
    CASE WHEN f.rev = max(f.rev) OVER () THEN f.input END AS input
FROM tidemill.item_fix f
LEFT JOIN tidemill.app_user u ON u.id = f.by
LEFT JOIN tidemill.operation o ON o.id = f.operation_id
WHERE f.job_id = %(job_id)s AND f.seq = %(seq)s ORDER BY f.rev
