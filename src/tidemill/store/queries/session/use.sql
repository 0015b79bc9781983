-- offered -> used: older secrets expire a minute from now. Index: session_pkey, session_by_user.
WITH this AS (
    UPDATE tidemill.session SET used = true, seen_at = tidemill.now() WHERE hash = %(hash)s AND NOT used
    RETURNING user_id, family, issued_at
)
UPDATE tidemill.session s SET replaced_at = tidemill.now() FROM this
WHERE s.user_id = this.user_id AND s.family = this.family AND s.issued_at < this.issued_at AND s.replaced_at IS NULL
