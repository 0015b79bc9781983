-- ready -> leased: lease an entire batch. `seqs` is set for a list that other lists were merged into.
UPDATE tidemill.batch SET state = 'leased', lease_id = %(lease_id)s, worker = %(worker)s, flush_no = 0,
    lease_until = tidemill.now() + %(lease)s * interval '1 second', since = tidemill.now(),
    lo = %(lo)s, hi = %(hi)s, seqs = %(seqs)s, open = %(open)s
WHERE id = %(batch_id)s
