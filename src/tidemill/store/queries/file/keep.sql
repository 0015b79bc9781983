-- A job is made of it, or it is gone already: it does not go by itself any more. Index: unneeded_file_pkey.
DELETE FROM tidemill.unneeded_file WHERE file_id = %(file_id)s
