-- The row a lease made or changed, if its commit arrived. Index: batch_leased.
SELECT id AS batch_id, job_id, owner_id, kind, state, lo, hi, seqs, open, flush_no, isolated, crashes, losses, retrying,
    (SELECT j.sparse FROM tidemill.job j WHERE j.id = batch.job_id) AS sparse
FROM tidemill.batch WHERE worker = %(worker)s AND state = 'leased' AND lease_id = %(lease_id)s
