-- Add a bulk operation. It is stored first; any worker can then lock and run it. If an earlier attempt with the same id
-- was committed, nothing is added.
INSERT INTO tidemill.operation (id, user_id, verb, job_id, predicate, request_id)
VALUES (%(id)s, %(user_id)s, %(verb)s, %(job_id)s, %(predicate)s, %(request_id)s) ON CONFLICT (id) DO NOTHING
