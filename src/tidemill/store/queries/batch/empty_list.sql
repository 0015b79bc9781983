-- ready -> done: close a list that has no items left. Index: batch_pkey.
UPDATE tidemill.batch SET state = 'done', open = 0, seqs = '{}', closed_at = tidemill.now() WHERE id = %(batch_id)s
