-- Lock the open batches of one job of the run, as a slow transaction would.
SELECT id FROM tidemill.batch WHERE job_id = %(job_id)s AND state IN ('ready', 'leased') ORDER BY id FOR UPDATE
