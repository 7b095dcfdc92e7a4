"""Benchmarks: `./corral bench inbound|tamq|bridge`. No stage: a shared machine proves nothing.

`inbound` is one command; `stand` a private server with one source, `contenders` who answers its
messages, `loops` and `peers` the ones that are not cowboy. `tamq` is the other; `queue_stand` a
TAMQ with a live session, `load` its clients, `queue_peers` and `bare_queue` the ones beside it.
`bridge` is the third; `bridge_stand` a bridge between `bridge_sides`, `bridge_rates` how fast it
takes transactions beside `bridge_peer`, `bridge_work` what it does with jobs, `bridge_rooms` the
same in the rooms of a real homeserver.
"""
