-- Delete expired sessions and sign-in links. No setting allows a session to last longer than 30 days. There are few.
WITH links AS (DELETE FROM tidemill.sign_in_link WHERE expires_at < tidemill.now())
DELETE FROM tidemill.session
WHERE created_at < tidemill.now() - interval '30 days' OR replaced_at < tidemill.now() - interval '1 minute'
