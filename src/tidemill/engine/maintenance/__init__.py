"""Background duties: reclaiming leases, closing jobs, removing expired files."""
