-- Delete the samples of purged jobs. Index: job_sample_pkey.
DELETE FROM tidemill.job_sample WHERE job_id >= %(lo)s AND job_id < %(hi)s
