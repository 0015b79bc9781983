-- Extend the slots of a worker's running children. Index: limiter_hold_worker.
UPDATE tidemill.limiter_hold SET until = greatest(until, tidemill.now() + %(seconds)s * interval '1 second')
WHERE worker = %(worker)s AND child = ANY(%(children)s) AND held > 0
