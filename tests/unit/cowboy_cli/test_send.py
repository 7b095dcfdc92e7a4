"""`cowboy send`: what is refused before Redis is asked; `tests/contract` sends for real."""

import pytest

from tests.unit.cowboy_cli.conftest import Host, Run
from tests.unit.cowboy_config import samples


class TestSend:
    def test_content_is_never_shown(self, run: Run, host: Host) -> None:
        host.add("scout")
        result = run("send", "scout", "a2a", "--content", "a private word")
        assert result.exit_code == 78
        assert result.err.startswith("cowboy: redis_url: is missing")
        assert "private" not in result.out + result.err

    @pytest.mark.parametrize(
        ("args", "stdin", "says"),
        [
            (("--content", ""), b"", "the content is empty"),
            (("--content", " \n"), b"", "the content is empty"),
            (("--content", "-"), b"", "the content is empty"),
            (("--content", "-"), b"x" * 65, "the content has more than 64 bytes"),
            (("--content", "x" * 65), b"", "the content has more than 64 bytes"),
            (("--content", "é" * 33), b"", "the content has more than 64 bytes"),
            (("--content", "x", "--channel", "c" * 65), b"", "channel has 65 bytes"),
            (("--content", "x", "--sender", "a\nb"), b"", "sender is not plain text"),
            (("--content", "x", "--message-id", "a\0b"), b"", "message_id is not plain text"),
            (("--content", "x", "--thread", "\udcff"), b"", "thread is not plain text"),
        ],
    )
    def test_what_the_agent_would_not_get_is_refused(
        self, args: tuple[str, ...], stdin: bytes, says: str, run: Run, host: Host,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setenv("COWBOY_REDIS_URL", f"unix://{host.runtime}/no.sock")
        host.add("scout", a2a=samples.source(content_max_bytes=64, metadata_max_bytes=64))
        result = run("send", "scout", "a2a", *args, stdin=stdin)
        assert result.exit_code == 64
        assert result.err.startswith(f"cowboy: {says}")

    def test_at_the_limit_it_goes_on_to_redis(
        self, run: Run, host: Host, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COWBOY_REDIS_URL", f"unix://{host.runtime}/no.sock")
        host.add("scout", a2a=samples.source(content_max_bytes=64, metadata_max_bytes=64))
        result = run("send", "scout", "a2a", "--content", "x" * 64, "--channel", "c" * 64)
        assert result.exit_code == 69, result.err
        assert result.err.startswith("cowboy: no connection to Redis")

    def test_another_source_is_refused(self, run: Run, host: Host) -> None:
        host.add("scout")
        result = run("send", "scout", "none", "--content", "x")
        assert result.exit_code == 64
        assert "agent scout has no source 'none'" in result.err
