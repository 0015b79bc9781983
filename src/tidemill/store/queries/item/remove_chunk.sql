-- Delete a chunk of the items of a deleted job. Index: item_pkey.
DELETE FROM tidemill.item WHERE job_id = %(job_id)s AND seq = ANY(ARRAY(
    SELECT seq FROM tidemill.item WHERE job_id = %(job_id)s ORDER BY seq LIMIT %(limit)s))
