-- Check and lock the lease for a handler that writes in the flush transaction, before the handler writes anything.
-- Returns when the server started: if the connection is lost, a later start is the reason.
SELECT pg_postmaster_start_time() FROM tidemill.batch
WHERE id = %(batch_id)s AND lease_id = %(lease_id)s AND state = 'leased' AND flush_no = %(flush_no)s
FOR NO KEY UPDATE
