-- Restores the search path and the date style.
SELECT set_config('search_path', %(path)s, true), set_config('datestyle', %(style)s, true)
