"""Files of other machines: fetched into the blob store, from where it is safe, and going on where it broke off."""
