"""Corral: messages to AI agents and their answers back, none lost to a kill."""

__version__ = "0.1.0.dev0"
