-- Lock one outcome, so that the item is not requeued meanwhile. Index: outcome_pkey.
SELECT status FROM tidemill.outcome WHERE job_id = %(job_id)s AND seq = %(seq)s FOR UPDATE
