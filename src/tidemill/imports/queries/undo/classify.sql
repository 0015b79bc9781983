-- The rows that are missing, or whose content is not the recorded one. The others are locked, in key order. Index: the
-- unique index of the key.
WITH n AS MATERIALIZED ({logged}), found AS MATERIALIZED (
    SELECT n.ord, CASE WHEN {untouched} THEN {hash} END AS hash FROM n JOIN {table} t ON {match} ORDER BY n.ord {lock}
)
SELECT n.ord, found.ord IS NULL FROM n LEFT JOIN found ON found.ord = n.ord
WHERE found.hash IS DISTINCT FROM n.hash
