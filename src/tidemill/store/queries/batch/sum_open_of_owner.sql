-- Count the open items of an owner by kind and status. Index: batch_open_owner.
SELECT kind, CASE WHEN state = 'leased' THEN 'processing' WHEN retrying THEN 'retry_wait' ELSE 'pending' END AS status,
    sum(open)::bigint AS items
FROM tidemill.batch WHERE state IN ('ready', 'leased') AND owner_id = %(owner_id)s GROUP BY 1, 2
