-- So many items of a ready range were settled one by one; when none is left, it is done. Index: batch_pkey.
UPDATE tidemill.batch SET open = open - %(n)s, state = CASE WHEN open = %(n)s THEN 'done' ELSE state END,
    closed_at = CASE WHEN open = %(n)s THEN tidemill.now() END
WHERE id = %(batch_id)s
