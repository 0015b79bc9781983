-- The rest of a source is not read, though it is there: its job was cancelled, and only some items go round again.
ALTER TABLE tidemill.ingest ADD COLUMN cut boolean NOT NULL DEFAULT false;

-- Whether a row has a field, of those at its top, that is this text; or that begins with it, when it ends with a star.
-- A row that is no object is looked at as it is. It never fails, whatever json may hold.
CREATE FUNCTION tidemill.has_field(input json, key text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    begins boolean := right(key, 1) = '*';
    wanted text := CASE WHEN right(key, 1) = '*' THEN left(key, -1) ELSE key END;
    value  json;
    found  text;
BEGIN
    FOR value IN SELECT f.value FROM json_each(CASE json_typeof(input) WHEN 'object' THEN input
                                               ELSE json_build_object('', input) END) f LOOP
        CONTINUE WHEN json_typeof(value) NOT IN ('string', 'number');
        found := value #>> '{}';
        IF found = wanted OR (begins AND starts_with(found, wanted)) THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END
$$;

-- The same, for nearly every row without a function call: what is not in the text is not in a field; with escapes, who
-- knows. PostgreSQL puts this in place of the call.
CREATE FUNCTION tidemill.has_key(input json, key text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT (strpos(input::text, CASE WHEN right(key, 1) = '*' THEN left(key, -1) ELSE key END) > 0
            OR strpos(input::text, '\') > 0) AND tidemill.has_field(input, key)
$$;

ALTER TABLE tidemill.operation DROP CONSTRAINT operation_verb_check,
    ADD CONSTRAINT operation_verb_check CHECK (verb IN ('reprocess', 'redrive', 'cancel'));
