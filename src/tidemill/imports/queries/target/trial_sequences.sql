-- Columns with a sequence default: the column, the name and start of a sequence for the dry run, and a default that
-- uses it. Index: the index of pg_attrdef on adrelid.
SELECT a.attname,
       'tidemill_trial_' || a.attnum,
       coalesce(CASE WHEN has_sequence_privilege(s.seqrelid, 'SELECT') THEN pg_sequence_last_value(s.seqrelid) END
                + s.seqincrement, s.seqstart),
       regexp_replace(pg_get_expr(d.adbin, d.adrelid), 'nextval\(''([^'']|'''')*''::regclass\)',
                      'nextval(''pg_temp.tidemill_trial_' || a.attnum || '''::regclass)', 'g')
FROM pg_attrdef d
JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated = ''
JOIN LATERAL (
    SELECT q.* FROM pg_depend p JOIN pg_sequence q ON q.seqrelid = p.refobjid
    WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid AND p.refclassid = 'pg_class'::regclass
    LIMIT 1
) s ON true
WHERE d.adrelid = format('%%I.%%I', %(schema)s::text, %(table)s::text)::regclass
