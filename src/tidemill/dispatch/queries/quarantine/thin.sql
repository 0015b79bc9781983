-- Only so many are kept, the newest: a stranger who sends rubbish all day must not fill the disk. Index: quarantine_pkey.
DELETE FROM tidemill.quarantine WHERE id < (
    SELECT id FROM tidemill.quarantine ORDER BY id DESC OFFSET %(keep)s - 1 LIMIT 1
)
