-- Keep only the newest messages, so that a sender of invalid messages cannot fill the disk. Index: quarantine_pkey.
DELETE FROM tidemill.quarantine WHERE id < (
    SELECT id FROM tidemill.quarantine ORDER BY id DESC OFFSET %(keep)s - 1 LIMIT 1
)
