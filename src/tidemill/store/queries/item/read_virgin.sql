-- Return the items of a range without outcomes. Index: item_pkey.
SELECT seq, input, 1::smallint, defect FROM tidemill.item
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s ORDER BY seq
