"""The crash points of the gateway: after each commit, before anybody is told."""

from corral.core.crashpoints import register

SENT = register("gateway.send.committed", "a message is taken, its client was not answered")
CANCELED = register("gateway.cancel.committed", "a task is canceled, its client was not answered")
ADDED = register("gateway.publish.added", "the inbox has an entry, that is not recorded")
PUBLISHED = register("gateway.publish.committed", "a message is marked as passed on")
READ = register("gateway.answer.read", "an answer was read from the outbox, nothing was done")
SETTLED = register("gateway.settle.committed", "what became of a task is recorded, nobody was told")
SWEPT = register("gateway.sweep.committed", "overdue tasks have ended, nobody was told")
