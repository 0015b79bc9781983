-- Delete messages up to this ID, or all. Index: quarantine_pkey.
DELETE FROM tidemill.quarantine WHERE id <= coalesce(%(upto)s, 9223372036854775807)
