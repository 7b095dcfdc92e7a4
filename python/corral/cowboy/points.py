"""The crash points of the daemon: after each commit and around each effect outside it."""

from corral.core.crashpoints import register

READ = register("cowboy.read.done", "entries were read, the ledger does not have them yet")
DRAIN = register("cowboy.drain.page", "a page of the own pending list was read at start-up")
ATTACHED = register("cowboy.attach.done", "fence taken, group and ledger key are ours")
TICK = register("cowboy.tick.committed", "a tick is committed, nothing that follows was done")
RECEIVED = register("cowboy.received.committed", "new turns are committed, nothing has started")
DISPATCHED = register("cowboy.dispatched.committed", "the hand-over is committed, not done")
PREPARE = register("cowboy.prepare.sent", "the runner was asked to prepare")
PREPARED = register("cowboy.prepared.received", "the child waits, its start is not committed")
STARTED = register("cowboy.started.committed", "the start is committed, go was not said")
GO = register("cowboy.go.sent", "go was said: the agent runs")
RESULT = register("cowboy.result.received", "the result is here, not committed")
ANSWER = register("cowboy.answer.received", "a session's answer is here, not committed")
ANSWERED = register("cowboy.answer.committed", "it is committed; its run goes on, nobody was told")
REPLYING = register("cowboy.replying.committed", "answers or notices are committed, not in Redis")
SETTLE = register("cowboy.settle.sent", "Redis has done a settlement, nothing of it is recorded")
OUTBOX = register("cowboy.outbox.added", "the outbox has the entry, its id is not recorded")
ACK = register("cowboy.ack.sent", "XACK was answered, not recorded")
SETTLED = register("cowboy.settled.committed", "ids and acknowledgements are recorded")
TRIM_BEFORE = register("cowboy.trim.before", "about to trim the inbox below the watermark")
TRIM_DONE = register("cowboy.trim.done", "the inbox is trimmed")
HELD = register("cowboy.held.committed", "a turn is held: the sender was told")
INTERRUPTED = register("cowboy.interrupted.committed", "an interruption is committed")
CANCEL = register("cowboy.cancel.kill_sent", "the runner was told to kill a cancelled run")
FORGET = register("cowboy.forget.sent", "the runner may forget a committed result")

# In the order in which a tick's follow-up passes them.
COMMITTED = (RECEIVED, ANSWERED, INTERRUPTED, DISPATCHED, STARTED, HELD, SETTLED, REPLYING)
