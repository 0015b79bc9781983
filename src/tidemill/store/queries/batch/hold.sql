-- The fence of a handler that writes in the flush transaction: proves the lease before any effect.
SELECT 1 FROM tidemill.batch
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased' AND flush_no = %(flush_no)s
FOR NO KEY UPDATE
