-- The settings of the session that the texts of values depend on. Floating-point numbers get all digits from here on.
SELECT current_setting('datestyle') AS datestyle, current_setting('intervalstyle') AS intervalstyle,
       current_setting('timezone') AS timezone, current_setting('bytea_output') AS bytea_output,
       current_setting('lc_monetary') AS lc_monetary, set_config('extra_float_digits', '1', true) AS extra_float_digits
