-- Lists that were merged into another: empty and done.
UPDATE tidemill.batch SET state = 'done', open = 0, seqs = '{}', closed_at = tidemill.now() WHERE id = ANY(%(ids)s)
