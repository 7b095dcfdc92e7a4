"""What an operator of the bridge may see go wrong."""

from typing import ClassVar

from corral.core.errors import ConfigError, CorralError, StorageError


class BridgeError(CorralError):
    """Base of the bridge's own errors."""

    code: ClassVar[str] = "bridge"


class LedgerError(StorageError, BridgeError):
    """The database refused or did not answer: what was asked may or may not be committed."""

    code: ClassVar[str] = "ledger_unavailable"


class PooledError(ConfigError, BridgeError):
    """The database is behind a pooler of transactions, and the settings say that it is not."""

    code: ClassVar[str] = "database_pooled"


class LeaseLostError(BridgeError):
    """Another worker has the job, or it has ended: nothing was changed, and the work stops."""

    code: ClassVar[str] = "lease_lost"


class NoSuchJobError(BridgeError):
    """There is no job with that id."""

    code: ClassVar[str] = "not_found"
    exit_code: ClassVar[int] = 66


class JobStateError(BridgeError):
    """The job's state does not allow what was asked."""

    code: ClassVar[str] = "invalid_state"
    exit_code: ClassVar[int] = 65
