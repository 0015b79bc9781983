-- Take or keep a duty. One worker at a time has it, until it stops renewing it. An end that no worker can have stored,
-- because the clock was set back, counts as passed. Returns the seconds by which the clock was set back, if positive.
UPDATE tidemill.duty d SET worker = %(worker)s, until = tidemill.now() + %(seconds)s * interval '1 second'
FROM (
    SELECT name, until FROM tidemill.duty
    WHERE name = %(name)s AND (worker = %(worker)s OR until < tidemill.now()
        OR until > tidemill.now() + 2 * %(seconds)s * interval '1 second')
    FOR UPDATE
) AS before
WHERE d.name = before.name
RETURNING CASE WHEN isfinite(before.until)
    THEN extract(epoch FROM before.until - tidemill.now())::float8 - %(seconds)s::float8 ELSE 0 END
