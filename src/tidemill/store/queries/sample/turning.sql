-- Jobs that somebody works on. Index: batch_turning, of the few leased rows.
SELECT DISTINCT job_id FROM tidemill.batch WHERE state = 'leased'
