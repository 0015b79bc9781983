-- The lock of one outcome: nobody sends it round again meanwhile. Index: outcome_pkey.
SELECT status FROM tidemill.outcome WHERE job_id = %(job_id)s AND seq = %(seq)s FOR UPDATE
