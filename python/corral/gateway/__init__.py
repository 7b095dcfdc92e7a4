"""The gateway: an A2A server in front of agents that read a stream.

Order of dependency: `domain`, `wire` and `card` are pure; `store` has the tables; `service` is what
clients and the agent's side may do; `http` is how clients do it, `stream` the way to an agent and
back; `daemon` puts them together.
"""
