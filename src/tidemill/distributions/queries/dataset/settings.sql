-- For the length of a transaction: values look the same wherever they are read, and as in an export.
SELECT set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO, YMD', true),
       set_config('intervalstyle', 'postgres', true), set_config('bytea_output', 'hex', true),
       set_config('extra_float_digits', '1', true)
