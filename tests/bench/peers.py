"""Two message libraries as contenders: `python -m tests.bench.peers faststream|taskiq serve|one`.

Runs in the environment of `python/requirements/bench.txt` and needs nothing of Corral. `one` puts
one message into the inbox in the library's own format, as the sample that the rest is copied from.
Each answers with the message itself, in the outbox, and keeps nothing.
"""

import asyncio
import os
import sys
from typing import Any
from urllib.parse import quote

CONTENT = "message".ljust(256, ".")
GROUP = "cowboy"
WORKERS = 100

INBOX, OUTBOX = os.environ["BENCH_INBOX"], os.environ["BENCH_OUTBOX"]
COUNT = int(os.environ["BENCH_READ_COUNT"])
URL = (
    f"unix://{os.environ['BENCH_USERNAME']}:{quote(os.environ['BENCH_PASSWORD'])}"
    f"@{os.environ['BENCH_SOCKET']}"
)


async def faststream(action: str) -> None:
    """A handler per message and a publisher; entries are acknowledged after the answer."""
    import logging

    from faststream import FastStream
    from faststream.redis import RedisBroker, StreamSub

    broker = RedisBroker(URL, logger=None)
    if action == "one":
        async with broker:
            await broker.publish(CONTENT, stream=INBOX)
        return

    async def echo(content: str) -> str:
        return content

    inbox = StreamSub(INBOX, group=GROUP, consumer="peer", max_records=COUNT, polling_interval=100)
    broker.subscriber(stream=inbox)(broker.publisher(stream=OUTBOX)(echo))
    await FastStream(broker, logger=None).run(log_level=logging.ERROR)


async def taskiq(action: str) -> None:
    """A task per message, one hundred at a time, which adds the answer itself."""
    import redis.asyncio
    from taskiq.api import run_receiver_task
    from taskiq_redis import RedisStreamBroker

    broker = RedisStreamBroker(
        URL, queue_name=INBOX, consumer_group_name=GROUP, consumer_id="0", xread_count=COUNT
    )
    connection: Any = redis.asyncio.Redis.from_url(URL, decode_responses=False)

    async def echo(content: str) -> None:
        await connection.xadd(OUTBOX, {"content": content})

    task: Any = broker.register_task(echo, task_name="echo")
    if action == "one":
        await broker.startup()
        await task.kiq(CONTENT)
        await broker.shutdown()
    else:
        await run_receiver_task(
            broker, max_async_tasks=WORKERS, max_prefetch=COUNT, run_startup=True
        )


def main() -> None:
    peer, action = sys.argv[1:]
    asyncio.run({"faststream": faststream, "taskiq": taskiq}[peer](action))


if __name__ == "__main__":
    main()
