-- The newest record with rows that can be reversed. Index: undo_log_live.
SELECT id, action, layout, row_count, live, operation_id FROM tidemill.undo_log
WHERE job_id = %(job_id)s AND is_undo = %(is_undo)s AND live_count > 0 AND id <= %(max_id)s ORDER BY id DESC LIMIT 1
