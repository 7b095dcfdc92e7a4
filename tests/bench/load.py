"""The clients of a queue's socket, as a process of their own: `python -m tests.bench.load`.

    python -m tests.bench.load SOCKET CLIENTS OPERATIONS NAME

Each operation is a connection, one line, its answer. Written on bare sockets, so that what is
measured is the server; needs nothing of Corral. `NAME` makes the keys of this run its own. Prints
one JSON object: operations per second and milliseconds, both without the first tenth, and how many
answers were refusals.
"""

import json
import secrets
import select
import socket
import sys
import time
from typing import Any

BODY_BYTES = 256
ANSWER_MAX_BYTES = 65_536
WARM_UP_SHARE = 10
ANSWER_TIMEOUT_S = 60.0

OK = b'{"ok":true'
FRAME = (
    b'{"op":"send","protocol":"0.1","client_id":"%s","idempotency_key":"%s",'
    b'"sender_repo":"local","target_repo":"shop","body":"' + b"b" * BODY_BYTES + b'"}\n'
)


class Load:
    """A number of clients that each ask again as soon as they are answered."""

    def __init__(self, path: str, clients: int, operations: int, name: str) -> None:
        self.path = path
        self.clients = clients
        self.operations = operations
        # Made before; a key falls anywhere among the others, as production's do.
        keys = (secrets.token_hex(8).encode() for _ in range(operations))
        self.frames = iter([FRAME % (name.encode(), key) for key in keys])
        self.times: list[tuple[float, float]] = []  # when it ended, how long it took
        self.refused = 0

    def alone(self) -> None:
        """One client: it waits for each answer."""
        for frame in self.frames:
            began = time.perf_counter()
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(ANSWER_TIMEOUT_S)
                connection.connect(self.path)
                connection.sendall(frame)
                answer = connection.recv(ANSWER_MAX_BYTES)
            self._answered(began, answer)

    def together(self) -> None:
        """Many clients in one loop over their sockets."""
        poll = select.epoll()
        waiting: dict[int, tuple[socket.socket, float]] = {}
        for _ in range(self.clients):
            self._ask(poll, waiting)
        while waiting:
            events = poll.poll(ANSWER_TIMEOUT_S)
            if not events:
                raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
            for handle, _ in events:
                connection, began = waiting.pop(handle)
                answer = connection.recv(ANSWER_MAX_BYTES)
                self._answered(began, answer)
                connection.close()
                self._ask(poll, waiting)

    def _ask(self, poll: select.epoll, waiting: dict[int, tuple[socket.socket, float]]) -> None:
        frame = next(self.frames, None)
        if frame is None:
            return
        began = time.perf_counter()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(self.path)
        connection.sendall(frame)
        waiting[connection.fileno()] = connection, began
        poll.register(connection.fileno(), select.EPOLLIN)

    def _answered(self, began: float, answer: bytes) -> None:
        now = time.perf_counter()
        self.times.append((now, now - began))
        if not answer.startswith(OK):
            self.refused += 1
            if self.refused == 1:
                print(answer.decode(errors="replace"), file=sys.stderr)

    def result(self) -> dict[str, Any]:
        """Without the first tenth."""
        warm = len(self.times) // WARM_UP_SHARE
        took_s = self.times[-1][0] - self.times[warm][0]
        latencies = sorted(took for _, took in self.times[warm:])
        return {
            "per_s": (len(self.times) - warm - 1) / took_s,
            "p50_ms": latencies[len(latencies) // 2] * 1000,
            "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
            "max_ms": latencies[-1] * 1000,
            "refused": self.refused,
        }


def main() -> None:
    path, clients, operations, name = sys.argv[1:]
    load = Load(path, int(clients), int(operations), name)
    if load.clients == 1:
        load.alone()
    else:
        load.together()
    print(json.dumps(load.result()))


if __name__ == "__main__":
    main()
