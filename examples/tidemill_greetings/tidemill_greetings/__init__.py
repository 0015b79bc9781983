"""An example of a Tidemill feature in a separate distribution."""
