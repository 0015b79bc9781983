-- Delete every second of the older samples of jobs that have too many. Older progress of a long job is therefore less
-- detailed, and the number of samples is limited. Index: job_sample_pkey.
DELETE FROM tidemill.job_sample s USING (
    SELECT job_id, at, row_number() OVER (PARTITION BY job_id ORDER BY at) AS n,
        count(*) OVER (PARTITION BY job_id) AS samples
    FROM tidemill.job_sample WHERE job_id = ANY(%(job_ids)s)
) numbered
WHERE s.job_id = numbered.job_id AND s.at = numbered.at
  AND numbered.samples > %(most)s AND numbered.n <= numbered.samples - %(fresh)s AND numbered.n %% 2 = 0
