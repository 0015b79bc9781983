-- Return the items of a range without outcomes as one list, and the defects of the items that have one. Index:
-- item_pkey.
SELECT '[' || string_agg(input::text, ',') || ']', jsonb_object_agg(seq, defect) FILTER (WHERE defect IS NOT NULL)
FROM (SELECT seq, input, defect FROM tidemill.item
      WHERE job_id = %(job_id)s AND seq >= %(lo)s AND seq < %(hi)s ORDER BY seq) i
