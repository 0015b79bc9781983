"""Downloads from URLs, with checks against private addresses."""
