-- Somebody has looked at them: all up to this one. Index: quarantine_pkey.
DELETE FROM tidemill.quarantine WHERE id <= coalesce(%(upto)s, 9223372036854775807)
