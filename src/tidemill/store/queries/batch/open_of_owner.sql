-- Count the open items of an owner by status. Reads one row per batch, never per item. Index: batch_open_owner.
SELECT coalesce(sum(open) FILTER (WHERE state = 'ready' AND NOT retrying), 0)::bigint AS pending,
    coalesce(sum(open) FILTER (WHERE state = 'leased'), 0)::bigint AS processing,
    coalesce(sum(open) FILTER (WHERE state = 'ready' AND retrying), 0)::bigint AS retry_wait
FROM tidemill.batch WHERE state IN ('ready', 'leased') AND owner_id = %(owner_id)s
