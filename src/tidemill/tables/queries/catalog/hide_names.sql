-- From here to the end of the transaction every name is printed with its schema, and dates as ISO 8601; what was set before.
WITH before AS MATERIALIZED (SELECT current_setting('search_path') AS path, current_setting('datestyle') AS style)
SELECT path, style, set_config('search_path', '', true), set_config('datestyle', 'ISO', true),
       set_config('standard_conforming_strings', 'on', true)
FROM before
