-- How many items are open. Index: batch_open_all.
SELECT coalesce(sum(open), 0)::bigint FROM tidemill.batch WHERE state IN ('ready', 'leased')
