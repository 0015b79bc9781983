-- Sum the sizes of a user's stored files, without one of them. Index: stored_file_owner.
SELECT coalesce(sum(bytes), 0)::bigint FROM tidemill.stored_file WHERE owner_id = %(owner_id)s AND file_id <> %(file_id)s
