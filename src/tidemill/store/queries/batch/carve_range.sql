-- The first n items of a virgin range leave it. `since` stays: its items did not move.
UPDATE tidemill.batch SET lo = lo + %(n)s, open = open - %(n)s WHERE id = %(batch_id)s
