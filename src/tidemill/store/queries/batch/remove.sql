-- With their job. Repeated until none is left: a flush that commits meanwhile may have added a list.
DELETE FROM tidemill.batch WHERE job_id = %(job_id)s
