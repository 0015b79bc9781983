-- How many files a flush tells of; in its transaction.
INSERT INTO tidemill.delivery (job_id, generated, reused)
SELECT %(job_id)s, count(*) FILTER (WHERE NOT (result->>'reused')::boolean),
    count(*) FILTER (WHERE (result->>'reused')::boolean)
FROM unnest(%(results)s::jsonb[]) AS given(result)
