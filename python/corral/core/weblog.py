"""What an HTTP server of ours logs by itself: that something went wrong, and nothing of it.

aiohttp logs what it could not parse together with the line that it could not parse, which may be a
header with a token; and what a handler raises, with its text.
"""

import logging


def wire_logger(name: str) -> logging.Logger:
    """For `web.AppRunner(app, access_log=None, logger=...)`."""
    logger = logging.getLogger(name)
    if not logger.filters:
        logger.addFilter(_without_details)
    return logger


def _without_details(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
    record.msg, record.args = f"a request was answered with an error {kind}".strip(), ()
    record.exc_info = record.exc_text = record.stack_info = None
    return True
