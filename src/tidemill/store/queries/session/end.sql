-- Sign out: delete every secret of this session. Index: session_pkey, session_by_user.
DELETE FROM tidemill.session s USING tidemill.session this
WHERE this.hash = %(hash)s AND s.user_id = this.user_id AND s.family = this.family
