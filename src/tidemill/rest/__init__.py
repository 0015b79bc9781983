"""What HTTP routes are built from: permissions, problems, pages, uploads, responses."""
