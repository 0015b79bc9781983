-- Create the partitions for the week that is some days from now, if they do not exist.
SELECT tidemill.ensure_partition(tidemill.now() + %(days)s * interval '1 day')
