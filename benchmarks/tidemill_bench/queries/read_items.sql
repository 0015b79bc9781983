-- The columns that a worker reads. Index: item_pkey.
SELECT seq, input, 0::smallint, defect FROM tidemill_bench.item
WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s ORDER BY seq
