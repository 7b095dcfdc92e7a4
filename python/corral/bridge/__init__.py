"""The bridge: mentions in Matrix rooms become tasks of A2A agents, through a durable ledger."""
