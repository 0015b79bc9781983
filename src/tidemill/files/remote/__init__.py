"""Downloads from URLs, with checked addresses."""
