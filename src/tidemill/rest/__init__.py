"""Building blocks of HTTP routes: permissions, problems, pages, uploads, responses."""
