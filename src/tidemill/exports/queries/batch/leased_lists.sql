-- The lists of a job that are being worked on. Index: batch_open_list.
SELECT seqs FROM tidemill.batch WHERE job_id = %(job_id)s AND seqs IS NOT NULL AND state = 'leased'
