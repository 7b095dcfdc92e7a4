"""The runner: a process of its own that starts an agent's runs and proves when each is over."""
