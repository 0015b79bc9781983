-- Remove the first n items from a list.
UPDATE tidemill.batch SET seqs = seqs[%(n)s + 1:], lo = seqs[%(n)s + 1], open = open - %(n)s
WHERE id = %(batch_id)s
