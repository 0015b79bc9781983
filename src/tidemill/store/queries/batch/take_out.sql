-- Subtract n items that were settled one by one from a ready range. Close it when none is left. Index: batch_pkey.
UPDATE tidemill.batch SET open = open - %(n)s, state = CASE WHEN open = %(n)s THEN 'done' ELSE state END,
    closed_at = CASE WHEN open = %(n)s THEN tidemill.now() END
WHERE id = %(batch_id)s
