"""One request to the writer: how it runs in the thread and how its caller is answered."""

import asyncio
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CoroutineType, GeneratorType
from typing import Any, Generic, TypeVar

from corral.core.database import storage_error

T = TypeVar("T")


class TransactionEndedError(Exception):
    """The transaction of the whole group is gone in the middle; the cause, if known, says why."""


class Callback(Generic[T]):
    """Stands where a future does, for whoever wants the answer in the loop's same step.

    `call(value, None)` or `call(None, error)`; what that raises goes to the loop's handler.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[T | None, BaseException | None], None]) -> None:
        self._call = call

    def done(self) -> bool:
        return False

    def set_result(self, value: T, /) -> None:
        self._tell(value, None)

    def set_exception(self, error: BaseException, /) -> None:
        self._tell(None, error)

    def _tell(self, value: T | None, error: BaseException | None) -> None:
        try:
            self._call(value, error)
        except Exception as fault:  # the others of the group must still be answered
            context = {"message": "an answer could not be taken", "exception": fault}
            asyncio.get_running_loop().call_exception_handler(context)


class Request(Generic[T]):
    """What `submit()` was given, and later the value or the exception that it answers."""

    __slots__ = ("error", "fn", "future", "value")

    def __init__(
        self, fn: Callable[[sqlite3.Connection], T], future: "asyncio.Future[T] | Callback[T]"
    ) -> None:
        self.fn = fn
        self.future = future
        self.value: T | None = None
        self.error: BaseException | None = None

    def attempt(self, connection: sqlite3.Connection, path: Path) -> bool:
        """Run in the open transaction; whether the result is to be committed.

        `TransactionEndedError` when there is no transaction afterwards: a full disk makes SQLite
        roll everything back, and a request may end what it did not begin. What follows in the
        group would then run outside of any transaction.
        """
        cause: BaseException | None = None
        try:
            self.value = _checked(self.fn(connection))
        except sqlite3.Error as error:
            cause = error
            self.fail(error, path)
        except BaseException as error:
            cause = self.error = error
        if cause is not None:
            _let_go(cause)
        try:
            if not connection.in_transaction:
                raise TransactionEndedError from cause
            return cause is None
        finally:
            del cause  # a frame of its own traceback would keep it alive

    def fail(self, cause: BaseException, path: Path) -> None:
        """Answer with a `StorageError` of its own: an exception is not shared by two callers."""
        self.error = storage_error(cause, path)
        self.error.__cause__ = cause

    def answer(self) -> None:
        """In the event loop: hand over the value or the exception, and let go of everything."""
        future, error = self.future, self.error
        if future.done():  # its caller was cancelled
            pass
        elif error is None:
            future.set_result(self.value)  # type: ignore[arg-type]  # T, once it was attempted
        elif isinstance(error, StopIteration):  # a future refuses this one
            future.set_exception(RuntimeError("a request raised StopIteration"))
        else:
            future.set_exception(error)
        # The frames of a traceback hold this object: without this, all of it would be a cycle.
        del self.future, self.fn, self.value, self.error


def answer(group: list[Request[Any]]) -> None:
    """Answer all of a group, in one step of the event loop."""
    for request in group:
        request.answer()


def _let_go(error: BaseException) -> None:
    """Drop the variables of a request that failed: a cursor among them would block the COMMIT."""
    link: BaseException | None = error
    while link is not None:
        traceback.clear_frames(link.__traceback__)
        link = link.__cause__ or link.__context__


def _checked(value: T) -> T:
    if isinstance(value, sqlite3.Cursor | CoroutineType | GeneratorType):
        if not isinstance(value, sqlite3.Cursor):
            value.close()
        raise TypeError(f"a request must return values, not a {type(value).__name__}")
    return value
