"""Patterns that have a name, and the words for a value that does not match. Possessive: none of them ever goes back."""

FORMATS = {
    "email": (r"[\w.!#$%&'*+/=?^`{|}~-]++@(?:[\w-]++\.)++[\w-]{2,}+", "an e-mail address"),
    "slug": (r"[a-z0-9]++(?:-[a-z0-9]++)*+", "in kebab case, like my-first-article"),
    "url": (r"https?://[^\s/?#]++(?:[/?#]\S*+)?+", "an address that begins with http:// or https://"),
}
