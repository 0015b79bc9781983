-- Set the remaining items of a list after some were removed. Index: batch_pkey.
UPDATE tidemill.batch SET seqs = %(seqs)s, lo = %(lo)s, hi = %(hi)s, open = %(open)s WHERE id = %(batch_id)s
