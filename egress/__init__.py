"""The one guarded way out to the network."""
