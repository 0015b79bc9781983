"""Named events and who hears them."""
