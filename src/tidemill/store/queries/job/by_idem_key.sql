-- Return the job that an owner's idempotency key created. A separate statement, because it must see the row that ON
-- CONFLICT found.
SELECT id, idem_print, kind, params, policy, priority FROM tidemill.job WHERE owner_id = %(owner_id)s AND idem_key = %(idem_key)s
