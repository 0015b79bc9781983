-- Check and lock the lease for a handler that writes in the flush transaction, before the handler writes anything.
SELECT 1 FROM tidemill.batch
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased' AND flush_no = %(flush_no)s
FOR NO KEY UPDATE
