-- Release the slots of a dead child, or of a whole worker. Index: limiter_hold_worker.
DELETE FROM tidemill.limiter_hold WHERE worker = %(worker)s AND (%(child)s::integer IS NULL OR child = %(child)s)
