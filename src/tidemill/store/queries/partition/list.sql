-- List the partitions of item and outcome by week, with their range of job ids and the time at which they end.
SELECT c.relname AS name, substring(c.relname FROM '_(\d{4}w\d{2})$') AS week, p.relname AS parent,
    substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \(''([^'']+)''\)')::uuid AS lo,
    substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''([^'']+)''\)')::uuid AS hi,
    i.inhdetachpending AS detaching
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
JOIN pg_namespace n ON n.oid = p.relnamespace
WHERE n.nspname = 'tidemill' AND p.relname IN ('item', 'outcome') AND p.relkind = 'p'
ORDER BY c.relname
