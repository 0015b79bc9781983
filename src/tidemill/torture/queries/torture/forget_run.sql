-- Remove the bulk operations, the killed workers and the kinds of a run.
WITH operations AS (DELETE FROM tidemill.operation WHERE user_id = %(owner_id)s),
workers AS (DELETE FROM tidemill.worker WHERE info->'kinds' ? 'torture.item')
DELETE FROM tidemill.kind WHERE starts_with(name, 'torture.')
