-- A deferred constraint would fail at commit, without naming the row.
SET CONSTRAINTS ALL IMMEDIATE
