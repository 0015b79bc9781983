-- Sessions and links nobody can use any more; there are few.
WITH links AS (DELETE FROM tidemill.sign_in_link WHERE expires_at < tidemill.now())
DELETE FROM tidemill.session WHERE seen_at < tidemill.now() - %(idle)s * interval '1 second'
    OR created_at < tidemill.now() - %(longest)s * interval '1 second'
    OR replaced_at < tidemill.now() - interval '1 minute'
