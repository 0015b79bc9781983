-- Add a bulk operation. It is stored first; any worker can then lock and run it.
INSERT INTO tidemill.operation (user_id, verb, job_id, predicate, request_id)
VALUES (%(user_id)s, %(verb)s, %(job_id)s, %(predicate)s, %(request_id)s) RETURNING id
