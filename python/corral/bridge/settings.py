"""Settings of the program `a2a-bridge`; they come from BRIDGE_… (see `corral.core.settings`).

Times end in their unit. Secrets (`as_token`, `hs_token`, `database`) belong in files.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from corral.bridge import domain
from corral.bridge.limits import AllowList, Policy, Rate
from corral.core.settings import ServiceSettings


class AgentSettings(BaseModel):
    """One agent: the ghost that stands for it in rooms, and where it is."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(
        description="`http://…`, `https://…` or `unix:/socket:/path`: of the card when it ends in "
        "`.json`, else the address below which the card is looked for."
    )
    localpart: str | None = Field(
        default=None, description="Of the ghost's user id; unset: the agent's key."
    )
    display_name: str | None = Field(default=None, description="Of the ghost.")
    protocol: Literal["1.0", "0.3"] | None = Field(
        default=None, description="Unset: what the card says."
    )
    endpoint: str | None = Field(
        default=None, description="Replaces the address that the card names."
    )
    token_file: Path | None = Field(default=None, description="Has the agent's bearer token.")
    allowed_senders: tuple[str, ...] = Field(
        default=(), description="Who may ask it (`*` stands for anything). Empty: everybody."
    )
    reconcile: bool = Field(
        default=False, description="After a lost call, look for the task in the agent's list."
    )
    idempotent: bool = Field(
        default=False,
        description="Send a lost message again, if the agent's card declares that it knows it.",
    )
    request_timeout_s: float | None = Field(default=None, gt=0, le=3_600)
    task_timeout_s: float | None = Field(default=None, gt=0, le=86_400)


class BridgeSettings(ServiceSettings):
    """The settings of the bridge; read them with `corral.core.settings.load(BridgeSettings)`."""

    model_config = SettingsConfigDict(env_prefix="BRIDGE_")

    homeserver_url: str = Field(description="The base address of the homeserver's client API.")
    server_name: str = Field(
        min_length=1, max_length=230, description="What follows the colon in user ids."
    )
    appservice_id: str = Field(default="corral-bridge", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    sender_localpart: str = Field(
        default="a2a-bridge", description="Of the bridge's own user, which is in no room."
    )
    as_token: SecretStr = Field(description="Shows the homeserver who we are.")
    hs_token: SecretStr = Field(description="Shows us that it is the homeserver who calls.")
    listen_host: str = Field(default="127.0.0.1", description="Where the homeserver calls us.")
    listen_port: int = Field(default=29_331, ge=1, le=65_535)
    url: str | None = Field(
        default=None,
        description="How the homeserver reaches us; unset: `http://listen_host:listen_port`.",
    )
    database: SecretStr = Field(description="`postgresql://…` of the ledger.")
    database_pooled: bool = Field(
        default=False, description="It is reached through a pooler of transactions."
    )
    takes_transactions: bool = Field(
        default=True,
        description="Whether this process may be the one that takes transactions. False: it only "
        "works on jobs, for a process that the homeserver does not reach.",
    )
    txn_conflict: Literal["reject", "epoch"] = Field(
        default="reject",
        description="When a transaction id comes with other events: refuse it (409), or take them "
        "by their own ids. `epoch` is for a Synapse on SQLite, whose numbers begin again.",
    )
    agents: dict[str, AgentSettings] = Field(min_length=1, max_length=1_000)

    concurrency: int = Field(default=16, ge=1, le=1_000, description="Jobs in work.")
    room_queue_capacity: int = Field(default=32, ge=1, le=100_000, description="Open, of a room.")
    global_queue_capacity: int = Field(default=256, ge=1, le=1_000_000, description="Open jobs.")
    control_capacity_per_job: int = Field(default=16, ge=2, le=1_000)
    max_task_progress_posts: int = Field(default=3, ge=0, le=100)
    claim_interval_s: float = Field(default=1.0, gt=0, le=60)
    lease_s: float = Field(default=30.0, ge=3, le=3_600)
    retry_initial_s: float = Field(default=1.0, gt=0, le=3_600)
    retry_max_s: float = Field(default=30.0, gt=0, le=3_600)
    attempts_max: int = Field(default=5, ge=1, le=100, description="Failures in a row.")
    request_timeout_s: float = Field(default=60.0, gt=0, le=3_600, description="One HTTP call.")
    task_timeout_s: float = Field(default=600.0, gt=0, le=86_400)
    input_wait_timeout_s: float = Field(default=600.0, gt=0, le=604_800)
    reconcile_timeout_s: float = Field(default=60.0, gt=0, le=3_600)
    placeholder_after_s: float = Field(
        default=2.0, ge=0, le=600, description="A task that takes longer gets a placeholder."
    )
    shutdown_timeout_s: float = Field(default=25.0, ge=0, le=600)
    tombstone_retention_h: float = Field(default=24.0, ge=24, le=87_600)
    transaction_max_bytes: int = Field(default=16 * 1024 * 1024, ge=65_536, le=268_435_456)
    catch_up_interval_s: float = Field(
        default=15.0, ge=0, le=3_600, description="Look so often for what the homeserver forgot to "
        "deliver when it was killed. 0: never.",
    )  # fmt: skip
    catch_up_age_max_s: float = Field(
        default=900.0, gt=0, le=86_400, description="What is older is not looked for."
    )
    pin_placeholders: bool = Field(default=False, description="Pin what is in work.")
    cancel_power_level: int | None = Field(
        default=None, description="Whoever has it in a room may cancel what others asked for."
    )

    sender_rate_per_min: float = Field(default=6.0, ge=0, description="0: no limit.")
    sender_burst: int = Field(default=3, ge=1, le=10_000)
    room_rate_per_min: float = Field(default=30.0, ge=0, description="0: no limit.")
    room_burst: int = Field(default=10, ge=1, le=10_000)
    allowed_senders: tuple[str, ...] = Field(default=(), description="Empty: everybody.")
    allowed_rooms: tuple[str, ...] = Field(default=(), description="Empty: every room.")
    allowed_inviters: tuple[str, ...] = Field(default=(), description="Empty: everybody.")

    @field_validator("homeserver_url", "url")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/") if value is not None else None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        spare = self.control_capacity_per_job - self.max_task_progress_posts
        if spare < 2:
            raise ValueError(
                "control_capacity_per_job must be at least 2 above max_task_progress_posts: "
                "one is kept for unpin, and one for a question or a cancellation"
            )
        if self.room_queue_capacity > self.global_queue_capacity:
            raise ValueError("room_queue_capacity must not be above global_queue_capacity")
        if self.retry_initial_s > self.retry_max_s:
            raise ValueError("retry_initial_s must not be above retry_max_s")
        localparts = [self.localpart(key) for key in self.agents]
        if len({*localparts, self.sender_localpart}) <= len(localparts):
            raise ValueError("agents: each needs a localpart of its own, not sender_localpart")
        return self

    # ------------------------------------------------------------ what is derived

    def localpart(self, agent: str) -> str:
        return self.agents[agent].localpart or agent

    @property
    def appservice_url(self) -> str:
        return self.url or f"http://{self.listen_host}:{self.listen_port}"

    @property
    def limits(self) -> domain.Limits:
        return domain.Limits(
            self.room_queue_capacity,
            self.global_queue_capacity,
            self.control_capacity_per_job,
            self.max_task_progress_posts,
        )

    def intake_policy(self) -> Policy:
        return Policy(
            Rate(self.sender_rate_per_min, self.sender_burst),
            Rate(self.room_rate_per_min, self.room_burst),
            AllowList(self.allowed_senders),
            AllowList(self.allowed_rooms),
            AllowList(self.allowed_inviters),
            {key: AllowList(one.allowed_senders) for key, one in self.agents.items()},
        )
