"""Settings of the program `tamq`; they come from TAMQ_… (see `corral.core.settings`).

Everything belongs to one Unix user: without settings the socket is in the user's runtime
directory, and the queue in the user's state directory.
"""

import os
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from corral.core.settings import ServiceSettings
from corral.tamq import domain, host
from corral.tamq.registry import default_path


def _state_dir() -> Path:
    given = os.environ.get("XDG_STATE_HOME")
    return (Path(given) if given else Path.home() / ".local" / "state") / "tamq"


class TamqSettings(ServiceSettings):
    """The settings of TAMQ; read them with `corral.core.settings.load(TamqSettings)`."""

    model_config = SettingsConfigDict(env_prefix="TAMQ_")

    socket: Path = Field(
        default_factory=lambda: host.runtime_dir() / "tamq.sock",
        description="Where TAMQ listens; its folder must be the user's own, of mode 0700. "
        "Unset: `$XDG_RUNTIME_DIR/tamq/tamq.sock`.",
    )
    state_dir: Path = Field(
        default_factory=_state_dir,
        description="Has the queue, `queue.db`. Unset: `$XDG_STATE_HOME/tamq`, "
        "or `~/.local/state/tamq`.",
    )
    gita_repos: Path = Field(
        default_factory=default_path,
        description="The registry of repositories. Unset: gita's own `repos.csv`.",
    )
    profiles: Path | None = Field(
        default=None, description="A TOML file with profiles of your own; unset: the built-in ones."
    )
    retry_delays_ms: tuple[int, ...] = Field(
        default=domain.RETRY_DELAYS_MS,
        min_length=1,
        max_length=9,
        description="Pauses after failed attempts, in order; the last one repeats.",
    )
    ack_deadline_ms: int = Field(
        default=domain.ACK_DEADLINE_MS,
        ge=100,
        le=86_400_000,
        description="How long an acknowledgement may take before the message is written again.",
    )
    lease_ms: int = Field(
        default=domain.LEASE_MS,
        ge=100,
        le=3_600_000,
        description="How long one attempt may take; an injection takes at most 20,000.",
    )
    open_messages_max: int = Field(
        default=10_000, ge=1, le=1_000_000, description="Messages that are not terminal yet."
    )
    connections_max: int = Field(default=1_024, ge=1, le=65_536, description="At once.")
    read_timeout_s: float = Field(
        default=10.0, gt=0, le=3_600, description="How long a client may take for its line."
    )
    idle_look_s: float = Field(
        default=5.0,
        gt=0,
        le=3_600,
        description="How often a session without messages is looked at.",
    )
    retention_days: float = Field(
        default=30.0, ge=0, le=36_500, description="How long bodies of terminal messages are kept."
    )
    capture_dir: Path | None = Field(
        default=None, description="Where requests, answers and attempts are logged; unset: nowhere."
    )
    capture_bodies: bool = Field(
        default=False, description="Whether the capture has bodies and metadata, too."
    )
    capture_file_max_bytes: int = Field(
        default=16_777_216, ge=65_536, le=1_073_741_824, description="Of one file of the capture."
    )
    capture_files: int = Field(
        default=5, ge=1, le=100, description="Files of the capture that are kept."
    )

    @field_validator("socket")
    @classmethod
    def _from_here(cls, path: Path) -> Path:
        return path.absolute()  # other programs, which are elsewhere, are told of it

    @property
    def database(self) -> Path:
        return self.state_dir / "queue.db"

    @property
    def times(self) -> domain.Times:
        return domain.Times(self.retry_delays_ms, self.ack_deadline_ms, self.lease_ms)
