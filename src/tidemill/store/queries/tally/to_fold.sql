-- List open jobs with enough closed batches to be worth a fold. Index: batch_unfolded.
SELECT job_id FROM tidemill.batch WHERE NOT folded AND state IN ('done', 'cancelled')
GROUP BY job_id HAVING count(*) >= %(least)s
