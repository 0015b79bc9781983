-- The numbers of rows of an import that an undo and a redo can reverse, and the newest record. Index: undo_log_job.
SELECT coalesce(sum(live_count) FILTER (WHERE NOT is_undo), 0)::bigint AS undoable,
       coalesce(sum(live_count) FILTER (WHERE is_undo), 0)::bigint AS redoable,
       coalesce(max(id), 0) AS max_id, count(*) > 0 AS has_log
FROM tidemill.undo_log WHERE job_id = %(job_id)s
