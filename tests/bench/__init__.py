"""Benchmarks: `./corral bench inbound`. Not a stage: figures of a shared machine prove nothing.

`inbound` is the command; `stand` a private server with one source, `contenders` who answers its
messages, `loops` and `peers` the ones that are not cowboy.
"""
