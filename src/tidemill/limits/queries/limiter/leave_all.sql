-- The places of a child that is dead, or of a whole worker, are free. Index: limiter_hold_worker.
DELETE FROM tidemill.limiter_hold WHERE worker = %(worker)s AND (%(child)s::integer IS NULL OR child = %(child)s)
