"""Terminals: where the messages of the queue are written. See `base` for what the queue knows."""
