-- Of jobs that have too many samples, every second of the older ones goes: a long job is drawn more coarsely the longer
-- ago it was, and never has more than so many. Index: job_sample_pkey.
DELETE FROM tidemill.job_sample s USING (
    SELECT job_id, at, row_number() OVER (PARTITION BY job_id ORDER BY at) AS n,
        count(*) OVER (PARTITION BY job_id) AS samples
    FROM tidemill.job_sample WHERE job_id = ANY(%(job_ids)s)
) numbered
WHERE s.job_id = numbered.job_id AND s.at = numbered.at
  AND numbered.samples > %(most)s AND numbered.n <= numbered.samples - %(fresh)s AND numbered.n %% 2 = 0
