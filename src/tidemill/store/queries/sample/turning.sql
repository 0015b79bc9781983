-- List jobs with leased batches. Index: batch_turning, which has few rows.
SELECT DISTINCT job_id FROM tidemill.batch WHERE state = 'leased'
