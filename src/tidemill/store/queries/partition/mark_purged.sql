-- Mark jobs as purged. Their counts stay; their rows are gone.
UPDATE tidemill.job SET purged_at = tidemill.now(), updated_at = tidemill.now()
WHERE id >= %(lo)s AND id < %(hi)s AND purged_at IS NULL
