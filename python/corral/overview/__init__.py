"""All services of a host on one screen: each is asked by its own program, and says how it is."""
