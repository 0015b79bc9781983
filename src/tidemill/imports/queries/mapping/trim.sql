-- Delete the mappings of each owner beyond the most recent ones. Index: import_mapping_owner.
DELETE FROM tidemill.import_mapping WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY owner_id ORDER BY used_at DESC, id DESC) AS place
        FROM tidemill.import_mapping
    ) ranked WHERE place > %(most)s LIMIT %(limit)s)
