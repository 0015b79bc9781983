-- As job/find, but only among the jobs of one owner, so that the result reveals nothing about other jobs. Index:
-- job_key_key, job_of_owner.
SELECT id FROM tidemill.job WHERE key = %(text)s AND owner_id = %(owner_id)s
UNION ALL
(SELECT id FROM tidemill.job WHERE (owner_id, id) >= (%(owner_id)s, %(lo)s) AND (owner_id, id) <= (%(owner_id)s, %(hi)s)
 ORDER BY owner_id, id LIMIT 2)
