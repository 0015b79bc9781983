-- Whether the newest job that a partition can hold is older than the given age.
SELECT %(hi)s::uuid <= tidemill.id_at(tidemill.now() - %(age)s * interval '1 second', false) AS past
