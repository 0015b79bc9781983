-- How many files some jobs have made, and used again. Index: delivery_job.
SELECT job_id, sum(generated)::bigint AS generated, sum(reused)::bigint AS reused FROM tidemill.delivery
WHERE job_id = ANY(%(ids)s) GROUP BY job_id
