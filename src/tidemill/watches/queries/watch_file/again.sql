-- Requeue failed files; each retry creates a new job. IS TRUE makes the planner hash the list. As a join, it compared
-- 5,000 files pairwise in 9 s, because the length of the arrays is unknown. Index: watch_file_state,
-- watch_file_waiting.
UPDATE tidemill.watch_file f SET state = 'seen', tries = tries + 1, note = %(note)s, job_id = NULL, moved_to = NULL,
    watch = %(watch)s, seen_at = 'epoch', at = tidemill.now()
WHERE f.source = %(source)s AND f.watch = %(watch)s AND f.state = 'failed'
    AND ((f.path, f.version) IN (
        SELECT g.path, g.version FROM unnest(%(paths)s::text[], %(versions)s::text[]) AS g(path, version))) IS TRUE
    AND (f.path IN (SELECT o.path FROM tidemill.watch_file o WHERE o.source = %(source)s AND o.state = 'seen')) IS NOT TRUE
