"""A whole host's state in one folder, and back: `corral backup` and `corral restore`.

Taken while everything runs, from where messages come to where they go: the bridge's ledger, the
gateway's tasks, Redis, the ledgers of cowboy, the queues of TAMQ. So what a restored ledger hands
on again, the one after it knows by its id already, and starts nothing twice.

The other way answers come, and there the order is the wrong one: what cowboy has given to Redis,
it does not give again. So gateway, Redis and cowboy are copied between two looks at Redis' log,
and again if something was written meanwhile. When nothing was, the copies are of one moment.
"""
