-- Count the open rows of a user. Index: batch_open_owner.
SELECT coalesce(sum(open), 0)::bigint FROM tidemill.batch WHERE owner_id = %(owner_id)s AND state IN ('ready', 'leased')
