-- Files that are over: moved away so long ago, or gone. Those that stay where they are must be remembered. So many at once.
-- Index: watch_file_over.
DELETE FROM tidemill.watch_file WHERE id IN (
    SELECT id FROM tidemill.watch_file
    WHERE (state = 'gone' OR (state = 'processed' AND moved_to IS NOT NULL))
        AND at < tidemill.now() - %(days)s * interval '1 day'
    ORDER BY at LIMIT %(limit)s)
