"""Machines that are booted and killed; see docs/explanation/vm-tests.md."""
