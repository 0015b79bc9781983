-- Clear the expiry of a file: a job uses it, or it is already removed. Index: unneeded_file_pkey.
DELETE FROM tidemill.unneeded_file WHERE file_id = %(file_id)s
