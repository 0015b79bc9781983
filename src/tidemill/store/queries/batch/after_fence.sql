-- Explain why a fence matched no row: the same flush was already committed, or the lease was lost.
SELECT state, lease_id, flush_no FROM tidemill.batch WHERE id = %(batch_id)s
