-- One item with every fact derived.
SELECT * FROM tidemill.item_status WHERE job_id = %(job_id)s AND seq = %(seq)s
