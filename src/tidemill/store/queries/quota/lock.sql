-- Lock the quotas of a user until the end of the transaction. An advisory lock, because workers may not update users.
SELECT pg_advisory_xact_lock(hashtextextended('tidemill.quota ' || %(owner_id)s, 0))
