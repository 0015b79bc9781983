-- A job's row. A second submission with the owner's same key adds nothing and returns nothing.
INSERT INTO tidemill.job (owner_id, kind, params, policy, source, priority, limiter, sparse, ingest_done,
    request_id, traceparent, ip_address, file_id, idem_key, idem_print)
VALUES (%(owner_id)s, %(kind)s, %(params)s, %(policy)s, %(source)s, %(priority)s, %(limiter)s, %(sparse)s,
    %(ingest_done)s, %(request_id)s, %(traceparent)s, %(ip_address)s, %(file_id)s, %(idem_key)s, %(idem_print)s)
ON CONFLICT (owner_id, idem_key) DO NOTHING
RETURNING id, tidemill.now() AS at
