-- Remove the first n items from a range without outcomes. `since` stays, because the remaining items did not change.
UPDATE tidemill.batch SET lo = lo + %(n)s, open = open - %(n)s WHERE id = %(batch_id)s
