-- Extend the leases of a worker. Skip batches that are being flushed: a flush extends its own lease, and a wait could
-- let the other leases expire. Index: batch_leased.
UPDATE tidemill.batch SET lease_until = greatest(lease_until, tidemill.now() + %(lease)s * interval '1 second')
WHERE id IN (SELECT id FROM tidemill.batch WHERE worker = %(worker)s AND state = 'leased' AND lease_id = ANY(%(lease_ids)s)
             ORDER BY id FOR UPDATE SKIP LOCKED)
