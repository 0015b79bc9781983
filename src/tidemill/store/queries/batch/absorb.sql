-- Close lists that were merged into another list.
UPDATE tidemill.batch SET state = 'done', open = 0, seqs = '{}', closed_at = tidemill.now() WHERE id = ANY(%(ids)s)
