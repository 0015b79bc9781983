-- The first n items of a list leave it.
UPDATE tidemill.batch SET seqs = seqs[%(n)s + 1:], lo = seqs[%(n)s + 1], open = open - %(n)s
WHERE id = %(batch_id)s
