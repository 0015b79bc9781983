-- The columns a job did not have go behind those it has, in the order they came; 256 at most. Run alone, never in a
-- flush: it locks the job. One statement: two workers with different columns both find room. Index: job_pkey.
UPDATE tidemill.job SET result_columns = (result_columns || ARRAY(
    SELECT new.name FROM unnest(%(names)s::text[]) WITH ORDINALITY AS new(name, place)
    WHERE new.name <> ALL(result_columns) ORDER BY new.place))[:%(most)s]
WHERE id = %(job_id)s AND NOT result_columns @> %(names)s::text[] AND cardinality(result_columns) < %(most)s
RETURNING result_columns
