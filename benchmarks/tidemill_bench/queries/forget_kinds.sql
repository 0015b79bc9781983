-- The benchmark's own kinds.
DELETE FROM tidemill.kind WHERE name LIKE 'bench.%'
