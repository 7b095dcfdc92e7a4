"""Settings of the gateway; they come from GATEWAY_… (see `corral.core.settings`)."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

from corral.core.settings import ServiceSettings
from corral.gateway import redislink
from corral.gateway.domain import Limits
from corral.gateway.redislink import SOURCE, Stream

DEFAULTS: Final = Limits()
YEAR_S: Final = 365 * 86_400

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")]


def _redis_url(value: str) -> str:
    redislink.endpoint(value)
    return value


class AgentEntry(BaseModel):
    """One agent that is served."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    password_file: Path = Field(description="The credential of `source.<agent>.<source>`.")
    source: Name = Field(default=SOURCE, description="The source of the agent that is ours.")
    description: str = Field(default="", max_length=500, description="For the agent's card.")


class GatewaySettings(ServiceSettings):
    """The settings; read them with `corral.core.settings.load(GatewaySettings)`."""

    model_config = SettingsConfigDict(env_prefix="GATEWAY_")

    socket: Path = Field(description="Where the gateway listens.")
    socket_mode: int = Field(default=0o660, ge=0, le=0o777, description="Who may connect.")
    state_dir: Path = Field(description="Has the tasks, `gateway.db`.")
    redis_url: Annotated[str, AfterValidator(_redis_url)] = Field(
        description="`unix:///path.sock`, `redis://host:port` or `rediss://host:port`."
    )
    agents: dict[Name, AgentEntry] = Field(min_length=1, description="By name.")
    clients: dict[Name, Path] = Field(min_length=1, description="Files with a bearer token each.")
    base_url: str = Field(
        default="http://localhost",
        pattern=r"^https?://[!-~]+$",
        description="What clients see before `/a2a/`, for the cards.",
    )
    metrics_dir: Path | None = Field(
        default=None, description="`gateway.prom` is written there; unset: no metrics."
    )
    body_max_bytes: int = Field(
        default=DEFAULTS.body_max_bytes, ge=1024, le=64 * 1024 * 1024, description="Of one call."
    )
    open_tasks_max: int = Field(
        default=DEFAULTS.open_tasks_max, ge=1, le=100_000, description="Of one client."
    )
    tasks_max: int = Field(
        default=DEFAULTS.tasks_max,
        ge=1,
        le=100_000_000,
        description="That are known, ended ones too. At that many no message is taken.",
    )
    task_timeout_s: float = Field(
        default=DEFAULTS.task_timeout_s,
        gt=0,
        le=YEAR_S,
        description="A task that has not moved for so long has failed, and its agent is told.",
    )
    input_timeout_s: float = Field(
        default=DEFAULTS.input_timeout_s,
        gt=0,
        le=YEAR_S,
        description="A question that is not answered for so long ends its task as canceled.",
    )
    content_kept_s: float = Field(
        default=DEFAULTS.content_kept_s,
        ge=60,
        le=YEAR_S,
        description="The content of an ended task is removed so long after its client got it.",
    )
    retention_s: int = Field(
        default=DEFAULTS.retention_s,
        ge=3_600,
        le=10 * YEAR_S,
        description="An ended task, its content and its message ids are forgotten after that.",
    )

    @property
    def database(self) -> Path:
        return self.state_dir / "gateway.db"

    @property
    def limits(self) -> Limits:
        return Limits(
            body_max_bytes=self.body_max_bytes,
            open_tasks_max=self.open_tasks_max,
            tasks_max=self.tasks_max,
            task_timeout_s=self.task_timeout_s,
            input_timeout_s=self.input_timeout_s,
            content_kept_s=self.content_kept_s,
            retention_s=self.retention_s,
        )

    def stream(self, agent: str) -> Stream:
        """Where the streams of an agent are."""
        entry = self.agents[agent]
        return Stream(
            agent=agent,
            redis=redislink.endpoint(self.redis_url),
            username=f"source.{agent}.{entry.source}",
            password_file=entry.password_file,
            source=entry.source,
        )
