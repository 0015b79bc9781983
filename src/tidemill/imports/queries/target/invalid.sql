-- Texts that are invalid for the type, and why (PostgreSQL 16 and later).
SELECT n.ord, (pg_input_error_info(n.v, %(type)s)).message
FROM unnest({texts}) WITH ORDINALITY AS n(v, ord) WHERE NOT pg_input_is_valid(n.v, %(type)s)
