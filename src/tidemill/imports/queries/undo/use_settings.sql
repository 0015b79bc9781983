-- Uses the settings with which texts were recorded, until the end of the transaction or the next call.
SELECT set_config('datestyle', %(datestyle)s, true), set_config('intervalstyle', %(intervalstyle)s, true),
       set_config('timezone', %(timezone)s, true), set_config('bytea_output', %(bytea_output)s, true),
       set_config('lc_monetary', %(lc_monetary)s, true)
