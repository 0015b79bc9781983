"""The engine: claim, run, decide, flush, ingest and finalize."""
