-- What is deferred would fail at the end, and nobody would know for which row.
SET CONSTRAINTS ALL IMMEDIATE
