-- Why a fence found no row: my own flush that had arrived after all, or a lost lease.
SELECT state, lease_id, flush_no FROM tidemill.batch WHERE id = %(batch_id)s
