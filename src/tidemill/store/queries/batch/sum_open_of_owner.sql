-- How many items of an owner are open: a row a batch, never an item. Index: batch_open_owner.
SELECT coalesce(sum(open), 0)::bigint FROM tidemill.batch WHERE state IN ('ready', 'leased') AND owner_id = %(owner_id)s
