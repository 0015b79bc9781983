-- Delete the duplicate pairs of a deleted job. Index: repeat_pkey.
DELETE FROM tidemill.repeat WHERE job_id = %(job_id)s
