-- Delete up to limit old records of files that were moved or are gone. Keep the records of files that remain at the
-- source, which prevent a second submission. Index: watch_file_over.
DELETE FROM tidemill.watch_file WHERE id IN (
    SELECT id FROM tidemill.watch_file
    WHERE (state = 'gone' OR (state = 'processed' AND moved_to IS NOT NULL))
        AND at < tidemill.now() - %(days)s * interval '1 day'
    ORDER BY at LIMIT %(limit)s)
