-- Count the effects of each item of a job. Index: effect (job_id).
SELECT seq, count(*) AS effects FROM tidemill_torture.effect WHERE job_id = %(job_id)s GROUP BY seq
