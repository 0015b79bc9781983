"""Users, API keys, browser sessions and sign-in."""
