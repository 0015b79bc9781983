-- Return one item with all derived columns. Index: item_pkey, outcome_pkey, batch_open_list, batch_cover.
SELECT * FROM tidemill.item_status WHERE job_id = %(job_id)s AND seq = %(seq)s
