-- Whether an export created a file with spreadsheet_safe. Indexes: unneeded_file_pkey, outcome_pkey.
SELECT (o.result->>'spreadsheet_safe')::boolean
FROM tidemill.unneeded_file f
JOIN tidemill.outcome o ON o.job_id = f.made_by AND o.seq = 0
WHERE f.file_id = %(file_id)s AND o.result->>'file_id' = %(file_id)s
