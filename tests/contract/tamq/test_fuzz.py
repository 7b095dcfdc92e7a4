"""Mutated frames against the whole service, beside a client that behaves, which notices nothing.

`corpus.json` has what once mattered; what fails here is added to it. A minute in
CI, a moment elsewhere.
"""

import asyncio
import json
import os
import random
import time
from pathlib import Path

import pytest

from corral.tamq.errors import CODES
from tests.contract.tamq.conftest import Starter
from tests.contract.tamq.kit import Service

# Bytes as text, each character one byte, so that the file can be read and compared.
CORPUS: dict[str, bytes] = {
    name: text.encode("latin-1")
    for name, text in json.loads(Path(__file__).with_name("corpus.json").read_text()).items()
}
FUZZ_S = 60.0 if os.environ.get("CI") == "true" else 4.0
WRITERS = 8
PATIENCE_S = 20.0  # for one answer to the client that behaves


async def answer_to(service: Service, data: bytes) -> dict[str, object] | None:
    """What is said to these bytes; None when nothing was sent or the connection was reset."""
    reader, writer = await asyncio.open_unix_connection(service.path, limit=2**20)
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(60):
            line = await reader.readline()
    except (BrokenPipeError, ConnectionResetError):
        return None
    finally:
        writer.close()
    answer: dict[str, object] = json.loads(line)
    return answer


def fault(data: bytes, answer: dict[str, object] | None) -> str | None:
    """What is wrong with an answer: only a refusal with a code that says what is right is right."""
    if answer is None or answer["ok"] is True:
        return None
    error = answer["error"]
    if not isinstance(error, dict) or error["code"] not in CODES:
        return f"{data!r}: {answer}"
    return f"{data!r}: {answer}" if "fault of TAMQ" in error["message"] else None


@pytest.mark.parametrize("name", sorted(CORPUS))
async def test_the_corpus(service: Service, name: str) -> None:
    await service.register()
    assert fault(CORPUS[name], await answer_to(service, CORPUS[name])) is None
    assert await service.ask("ping")


def mutated(rng: random.Random) -> bytes:
    data = bytearray(rng.choice(list(CORPUS.values())))
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at : at + rng.randint(1, 4)] = b""
            case 1:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
            case 2:
                other = rng.choice(list(CORPUS.values()))
                start = rng.randrange(len(other))
                data[at : at + 8] = other[start : start + rng.randint(1, 40)]
            case 3:
                data[at:at] = rng.choice(
                    [b'"', b"{", b"}", b"\n", b"\\u0000", b"\\ud800", b"1e999"]
                )
    return bytes(data)


async def test_mutations_beside_a_client_that_behaves(services: Starter, seed: int) -> None:
    service = await services.start(open_max=1_000_000)
    mine = (await service.register("mine"))["endpoint_id"]  # chance may register others
    over = time.monotonic() + FUZZ_S
    faults: list[str] = []
    frames = 0

    async def garble(number: int) -> None:
        nonlocal frames
        rng = random.Random(f"{seed}:{number}")
        while time.monotonic() < over and not faults:
            data = mutated(rng)
            found = fault(data, await answer_to(service, data))
            frames += 1
            if found is not None:
                faults.append(found)

    async def behave() -> None:
        number = 0
        while time.monotonic() < over:
            async with asyncio.timeout(PATIENCE_S):
                assert (await service.ask("ping"))["protocol"] == "0.1"
                one = await service.send(
                    client_id="behaves", idempotency_key=str(number), endpoint_id=mine
                )
            assert one["deduplicated"] is False
            await service.ask("ack", message_id=one["message_id"])
            number += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(behave())
        for number in range(WRITERS):
            group.create_task(garble(number))
    assert not faults
    assert frames > 50
