-- Persisted first: whoever gets its lock carries it out.
INSERT INTO tidemill.operation (user_id, verb, job_id, predicate, request_id)
VALUES (%(user_id)s, %(verb)s, %(job_id)s, %(predicate)s, %(request_id)s) RETURNING id
