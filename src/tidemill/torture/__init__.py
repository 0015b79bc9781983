"""``tidemill torture``: random faults against real processes, and proof that no row is lost, doubled or stuck."""
