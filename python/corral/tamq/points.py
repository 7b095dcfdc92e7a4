"""The crash points of TAMQ's daemon: after each commit and around each effect outside it."""

from corral.core.crashpoints import register

ADMITTED = register("tamq.send.committed", "a message is admitted, its sender was not answered")
LEASED = register("tamq.lease.committed", "an attempt is leased, nothing was written")
INJECTED = register("tamq.inject.done", "the terminal was written to, that is not recorded")
RECORDED = register("tamq.result.committed", "the result of an attempt is recorded")
EXPIRED = register("tamq.expiry.committed", "a lease or a deadline expired, nothing followed")
ACKED = register("tamq.ack.committed", "an acknowledgement is recorded, nobody was told")
RETRIED = register("tamq.retry.committed", "a retry is recorded, nobody was told")
REBOUND = register("tamq.rebind.committed", "a message is bound anew, nobody was told")
REGISTERED = register("tamq.register.committed", "an endpoint is registered, it was not told")
GONE = register("tamq.gone.committed", "an endpoint is gone, its leases have ended")
