-- The search path and the style of dates as they were.
SELECT set_config('search_path', %(path)s, true), set_config('datestyle', %(style)s, true)
