-- Whether a partition's last possible job is older than the age asked for.
SELECT %(hi)s::uuid <= tidemill.id_at(tidemill.now() - %(age)s * interval '1 second', false) AS past
