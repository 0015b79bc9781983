-- What stays in a list of which some were taken out. Index: batch_pkey.
UPDATE tidemill.batch SET seqs = %(seqs)s, lo = %(lo)s, hi = %(hi)s, open = %(open)s WHERE id = %(batch_id)s
