-- Append new result columns to a job in the order they were seen, up to 256. Run it alone, never in a flush, because it
-- locks the job. It is one statement, so that the columns of two concurrent workers are both added. Index: job_pkey.
UPDATE tidemill.job SET result_columns = (result_columns || ARRAY(
    SELECT new.name FROM unnest(%(names)s::text[]) WITH ORDINALITY AS new(name, place)
    WHERE new.name <> ALL(result_columns) ORDER BY new.place))[:%(most)s]
WHERE id = %(job_id)s AND NOT result_columns @> %(names)s::text[] AND cardinality(result_columns) < %(most)s
RETURNING result_columns
