-- Register the broker, so that hints are written; return the namespace of this installation's queues.
INSERT INTO tidemill.broker (scheme) VALUES (%(scheme)s)
ON CONFLICT (one) DO UPDATE SET scheme = excluded.scheme, seen_at = tidemill.now()
RETURNING namespace
