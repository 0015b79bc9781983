-- Items of a deleted job, a chunk at a time. Index: item_pkey.
DELETE FROM tidemill.item WHERE job_id = %(job_id)s AND seq = ANY(ARRAY(
    SELECT seq FROM tidemill.item WHERE job_id = %(job_id)s ORDER BY seq LIMIT %(limit)s))
