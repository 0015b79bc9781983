-- Return the owner of a job, the owner's role, and the limits that are set for the owner. Index: job_pkey,
-- app_user_pkey.
SELECT j.owner_id, coalesce(u.role, 'user') AS role, coalesce(u.quota, '{}') AS quota
FROM tidemill.job j LEFT JOIN tidemill.app_user u ON u.id = j.owner_id WHERE j.id = %(job_id)s
