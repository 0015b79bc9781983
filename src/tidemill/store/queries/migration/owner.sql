-- The role of this session, the owner of Tidemill's tables, and whether the first has the rights of the second.
SELECT current_user, pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE')
FROM pg_class WHERE relname = 'migration' AND relnamespace = 'tidemill'::regnamespace
