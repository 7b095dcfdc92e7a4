"""The operator's procedure does what its page says, and prints what its page shows."""

from pathlib import Path

from tests.contract import procedure


async def test_every_command_of_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    """To write the outputs anew: `python -m tests.contract.procedure`."""
    page = procedure.PAGE.read_text()
    shown = procedure.blocks(page)
    assert len(shown) >= 9, "the page has lost its commands"
    done = await procedure.perform(page, tmp_path)
    found = procedure.normal([text for one in done for text in (one.command, one.output.rstrip())])
    wanted = procedure.normal(
        [text for one in shown for text in (one.command, one.output.rstrip())]
    )
    assert found == wanted
