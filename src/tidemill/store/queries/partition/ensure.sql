-- The partitions of a moment so many days from now, if they are not there.
SELECT tidemill.ensure_partition(tidemill.now() + %(days)s * interval '1 day')
