"""TAMQ: a local durable queue on a Unix socket that wakes live agent sessions in terminals."""
