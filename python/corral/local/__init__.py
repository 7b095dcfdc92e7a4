"""The local deployment: the same services and generated configuration, without Nix and root.

Real servers on private Unix sockets, a topology joined from the golden rendering, a supervisor
that restarts what dies, a workload that records what it sent and saw, and a model that reconciles
the two. `./corral demo`, the crash suite and `./corral chaos` are built from these parts.
"""
