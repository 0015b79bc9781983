-- List batches of a job that a worker has leased. Index: batch_open_list.
SELECT seqs FROM tidemill.batch WHERE job_id = %(job_id)s AND seqs IS NOT NULL AND state = 'leased'
