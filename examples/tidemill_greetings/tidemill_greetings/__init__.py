"""An example of a Tidemill feature in a distribution of its own."""
