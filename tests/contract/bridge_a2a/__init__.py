"""The bridge's side of A2A against real agents and through faults."""
