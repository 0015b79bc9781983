-- Register a worker, or update its heartbeat.
INSERT INTO tidemill.worker (id, host, pid, info) VALUES (%(id)s, %(host)s, %(pid)s, %(info)s)
ON CONFLICT (id) DO UPDATE SET seen_at = tidemill.now(), info = excluded.info
