"""Moves items through their life: ingest, claim, process, decide, flush, sweep, finalize."""
