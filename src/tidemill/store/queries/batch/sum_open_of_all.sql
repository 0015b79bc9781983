-- Count open items by kind and status. Reads one row per batch, never per item. Index: batch_open_all.
SELECT kind, CASE WHEN state = 'leased' THEN 'processing' WHEN retrying THEN 'retry_wait' ELSE 'pending' END AS status,
    sum(open)::bigint AS items
FROM tidemill.batch WHERE state IN ('ready', 'leased') GROUP BY 1, 2
