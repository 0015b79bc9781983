-- Describe the first open batches of a job, as evidence. Index: batch_claim.
SELECT id, state, lo, hi, open, seqs IS NOT NULL AS is_list, isolated, losses, crashes, disconnects, worker,
    not_before - tidemill.now() AS due_in, lease_until - tidemill.now() AS lease_left
FROM tidemill.batch WHERE job_id = %(job_id)s AND state IN ('ready', 'leased') ORDER BY id LIMIT 5
