-- List what users did to a job, newest first. Index: activity_job.
SELECT a.id, a.at, a.user_id, u.name AS user_name, a.verb, a.details
FROM tidemill.activity a LEFT JOIN tidemill.app_user u ON u.id = a.user_id
WHERE a.job_id = %(job_id)s AND a.id < %(before)s ORDER BY a.id DESC LIMIT %(limit)s
