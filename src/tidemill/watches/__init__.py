"""Watches: folders, servers and buckets whose new files become jobs."""
