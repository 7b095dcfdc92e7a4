"""The Matrix side: what the bridge says, and how it reaches a homeserver."""
