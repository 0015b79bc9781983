-- Extends a worker's leases, but never waits behind one that is being flushed: a flush extends its own, and
-- waiting would let the others run out. Index: batch_leased.
UPDATE tidemill.batch SET lease_until = greatest(lease_until, tidemill.now() + %(lease)s * interval '1 second')
WHERE id IN (SELECT id FROM tidemill.batch WHERE worker = %(worker)s AND state = 'leased' AND lease_id = ANY(%(lease_ids)s)
             ORDER BY id FOR UPDATE SKIP LOCKED)
