-- Makes PostgreSQL print names with their schema and dates in ISO 8601 until the end of the transaction. Returns the
-- previous settings.
WITH before AS MATERIALIZED (SELECT current_setting('search_path') AS path, current_setting('datestyle') AS style)
SELECT path, style, set_config('search_path', '', true), set_config('datestyle', 'ISO', true),
       set_config('standard_conforming_strings', 'on', true)
FROM before
