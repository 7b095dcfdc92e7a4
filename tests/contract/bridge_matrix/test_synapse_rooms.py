"""Our client against a real Synapse: ids that make one event, refusals that say what they are."""

from dataclasses import replace
from pathlib import Path

import pytest

from corral.bridge.identities import Stage, matrix_txn
from corral.bridge.matrix.contents import RoomContents
from corral.bridge.matrix.rooms import DEVICE_ID, MatrixRooms, Pinged
from corral.bridge.ports import (
    Artifact,
    AuthFailed,
    Forbidden,
    Found,
    Joined,
    Limited,
    Pins,
    Place,
    Sent,
    TooLarge,
    Unreachable,
    Uploaded,
)
from corral.bridge.registration import document
from corral.local import wait
from corral.local.matrix import Event, Person
from corral.local.synapse import Options, Synapse
from tests.harness.homeserver import Endpoint, client_options, registration

TIMEOUT_S = 60.0
MESSAGE = "m.room.message"
CONTENTS = RoomContents()


async def bodies(person: Person, room_id: str) -> list[str]:
    return [
        one["content"]["body"] for one in await person.history(room_id) if "body" in one["content"]
    ]


def said(text: str) -> dict[str, object]:
    return {"msgtype": "m.notice", "body": text}


async def test_f41_one_id_makes_one_event_also_after_the_homeserver_restarted(
    rooms: MatrixRooms, room_id: str, alice: Person, homeserver: Synapse
) -> None:
    first = await rooms.send("scout", room_id, "txn", MESSAGE, said("once"))
    assert isinstance(first, Sent)
    assert await rooms.send("scout", room_id, "txn", MESSAGE, said("once")) == first
    homeserver.kill()
    homeserver.start()
    assert await rooms.send("scout", room_id, "txn", MESSAGE, said("once")) == first
    assert await bodies(alice, room_id) == ["once"]


async def test_f41_two_ghosts_never_share_an_id(
    rooms: MatrixRooms, room_id: str, alice: Person
) -> None:
    await alice.invite(room_id, rooms.user_id("clerk"))
    sent = [
        await rooms.send(
            ghost, room_id, matrix_txn(Stage.PRIMARY, 0, "job", ghost), MESSAGE, said(ghost)
        )
        for ghost in ("scout", "clerk")
    ]
    assert all(isinstance(one, Sent) for one in sent)
    assert await bodies(alice, room_id) == ["scout", "clerk"]
    # What the ids are for: one id for both would lose the second message here.
    await rooms.send("scout", room_id, "same", MESSAGE, said("one"))
    await rooms.send("clerk", room_id, "same", MESSAGE, said("two"))
    assert await bodies(alice, room_id) == ["scout", "clerk", "one"]


async def test_an_earlier_event_of_ours_is_found_by_its_id(
    rooms: MatrixRooms, room_id: str, alice: Person, homeserver: Synapse, endpoint: Endpoint
) -> None:
    sent = await rooms.send("scout", room_id, "job-1", MESSAGE, said("x"))
    assert isinstance(sent, Sent)
    for number in range(7):
        await alice.say(room_id, str(number))
    await alice.send(room_id, said("an imitation") | {"corral.id": "job-2"})
    options = client_options(homeserver, endpoint.port, find_page_events=3)
    async with MatrixRooms(options) as few:
        assert await few.find("scout", room_id, "job-1") == Found(sent.event_id)
        assert await few.find("scout", room_id, "job-2") == Found(None)


async def test_f49_a_ghost_that_is_not_in_the_room_joins_and_speaks(
    rooms: MatrixRooms, alice: Person
) -> None:
    invited = await alice.create_room(invite=[rooms.user_id("scout")])
    assert isinstance(await rooms.send("scout", invited, "1", MESSAGE, said("here")), Sent)
    closed = await alice.create_room()
    refused = await rooms.send("scout", closed, "1", MESSAGE, said("here"))
    assert refused == Forbidden("m_forbidden")
    assert await rooms.join("scout", "!nowhere:corral.test") in (
        Forbidden("m_unknown"), Forbidden("m_not_found"), Forbidden("m_forbidden")
    )  # fmt: skip


async def test_f49_what_is_too_large_is_said_to_be(rooms: MatrixRooms, room_id: str) -> None:
    assert await rooms.send("scout", room_id, "1", MESSAGE, said("x" * 70_000)) == TooLarge()


@pytest.mark.parametrize("character", ["x", "é", "\U0001f43a", "\x01", '"', "\0", "\ud800"])
async def test_f49_a_long_answer_is_split_into_events_that_fit(
    rooms: MatrixRooms, room_id: str, alice: Person, character: str
) -> None:
    asked = await alice.say(room_id, "look")
    text = character * 60_000
    place = Place(room_id, asked)
    parts = CONTENTS.answer(place, text, failed=False, our_id="a")
    edits = CONTENTS.edit(place, asked, text, failed=False, our_id="e")
    for number, content in enumerate([*parts, *edits]):
        sent = await rooms.send("scout", room_id, str(number), MESSAGE, content)
        assert isinstance(sent, Sent)


async def test_f49_a_429_says_how_long(tmp_path: Path, synapse_python: Path) -> None:
    slow = {"rc_message": {"per_second": 0.1, "burst_count": 1}}
    limited = document(registration(1)) | {"rate_limited": True}
    options = Options(registrations=[limited], settings=slow)
    with Synapse(tmp_path / "slow", options, synapse_python) as server:
        async with (
            Person(server.url, "alice") as alice,
            MatrixRooms(client_options(server, 1)) as rooms,
        ):
            await alice.register()
            room_id = await alice.create_room(invite=[rooms.user_id("scout")])
            assert await rooms.join("scout", room_id) == Joined()
            answers = [
                await rooms.send("scout", room_id, str(number), MESSAGE, said("x"))
                for number in range(4)
            ]
    refused = [one for one in answers if isinstance(one, Limited)]
    assert refused
    assert all(0 < one.retry_after_ms <= 10_000 for one in refused)


async def test_files_are_uploaded_and_shown(
    rooms: MatrixRooms, room_id: str, alice: Person
) -> None:
    asked = await alice.say(room_id, "look")
    for data in (b"\x89PNG", b""):
        uploaded = await rooms.upload("scout", data, "image/png", "a b.png")
        assert isinstance(uploaded, Uploaded)
        assert uploaded.uri.startswith("mxc://corral.test/")
        artifact = Artifact("a1", "a b.png", data=data, media_type="image/png")
        content = CONTENTS.artifact(Place(room_id, asked), artifact, uploaded.uri, our_id="x")
        sent = await rooms.send("scout", room_id, uploaded.uri[-20:], MESSAGE, content)
        assert isinstance(sent, Sent)


async def test_pins_are_read_and_set_and_may_be_forbidden(
    rooms: MatrixRooms, room_id: str, alice: Person
) -> None:
    assert await rooms.pins("scout", room_id) == Pins(())
    assert await rooms.set_pins("scout", room_id, ["$x"]) == Forbidden("m_forbidden")
    levels = await alice.state(room_id, "m.room.power_levels")
    levels["users"] = {**levels.get("users", {}), rooms.user_id("scout"): 50}
    await alice.call("PUT", f"/rooms/{room_id}/state/m.room.power_levels/", levels)
    assert isinstance(await rooms.set_pins("scout", room_id, ["$x", "$y"]), Sent)
    assert await rooms.pins("scout", room_id) == Pins(("$x", "$y"))
    assert await rooms.power_level(room_id, rooms.user_id("scout")) == 50
    assert await rooms.power_level(room_id, "@nobody:corral.test") == 0
    assert await rooms.power_level("!nowhere:corral.test", "@nobody:corral.test") is None


async def test_a_wrong_token_and_a_dead_homeserver_are_told_apart(
    homeserver: Synapse, endpoint: Endpoint, room_id: str
) -> None:
    options = client_options(homeserver, endpoint.port)
    async with MatrixRooms(replace(options, as_token="x" * 20)) as rooms:
        answer = await rooms.send("scout", room_id, "1", MESSAGE, said("x"))
        assert answer == AuthFailed("m_unknown_token")
        assert await rooms.ping("t") == AuthFailed("m_unknown_token")
    homeserver.stop()
    async with MatrixRooms(options) as rooms:
        assert await rooms.send("scout", room_id, "1", MESSAGE, said("x")) == Unreachable(
            "no_answer"
        )


async def test_each_ghost_has_one_device_whatever_the_number_of_starts(
    rooms: MatrixRooms, homeserver: Synapse, endpoint: Endpoint, room_id: str
) -> None:
    assert isinstance(await rooms.send("scout", room_id, "1", MESSAGE, said("x")), Sent)
    async with MatrixRooms(client_options(homeserver, endpoint.port)) as again:
        assert await again.prepare("scout") is None
    async with Person(homeserver.url, "ghost", token=registration(1).as_token) as ghost:
        query = {"user_id": rooms.user_id("scout")}
        devices = (await ghost.call("GET", "/devices", query=query))["devices"]
    assert [one["device_id"] for one in devices] == [DEVICE_ID]


async def test_invitations_that_nobody_heard_of_are_listed(
    rooms: MatrixRooms, alice: Person, homeserver: Synapse
) -> None:
    async def known() -> bool:
        found = await rooms.invitations("scout")
        assert isinstance(found, list)
        return (room_id, alice.user_id) in found

    room_id = await alice.create_room(invite=[rooms.user_id("scout")])
    assert await known()
    assert await rooms.join("scout", room_id) == Joined()
    assert not await known()


async def test_f44_a_ping_flushes_what_a_homeserver_holds_back(
    tmp_path: Path, synapse_python: Path, endpoint: Endpoint
) -> None:
    """Without the module that shortens the pauses: they are minutes long here."""
    options = Options(registrations=[document(registration(endpoint.port))], quick_retries=False)
    with Synapse(tmp_path / "slow", options, synapse_python) as server:
        async with (
            Person(server.url, "alice") as alice,
            MatrixRooms(client_options(server, endpoint.port)) as rooms,
        ):
            await alice.register()
            room_id = await alice.create_room(invite=[rooms.user_id("scout")])
            assert await rooms.join("scout", room_id) == Joined()
            said_id = await alice.say(room_id, "look", mention=[rooms.user_id("scout")])
            log = server.log_file

            def backed_off() -> bool:
                return "retries on corral-bridge in 4" in log.read_text()

            await wait.until_true(backed_off, TIMEOUT_S, "the homeserver to back off")
            assert isinstance(await rooms.ping("before"), Unreachable | Forbidden)
            async with endpoint.serving():
                assert isinstance(await rooms.ping("at-start"), Pinged)

                def come() -> bool:
                    return bool(endpoint.admission.mentions)

                await wait.until_true(come, TIMEOUT_S, "the backlog")
    assert [one.event_id for one in endpoint.admission.mentions] == [said_id]


async def test_a_conversation_looks_as_it_should(
    rooms: MatrixRooms, room_id: str, alice: Person
) -> None:
    asked = await alice.say(room_id, "look", mention=[rooms.user_id("scout")])
    place = Place(room_id, asked)
    placeholder = await rooms.send(
        "scout", room_id, "p", MESSAGE, CONTENTS.placeholder(place, our_id="p")
    )
    assert isinstance(placeholder, Sent)
    inside = Place(room_id, placeholder.event_id, placeholder.event_id)
    for number, (text, kind) in enumerate([("half", "progress"), ("which?", "question")]):
        content = CONTENTS.threaded(inside, text, kind=kind, our_id=f"t{number}")
        assert isinstance(await rooms.send("scout", room_id, f"t{number}", MESSAGE, content), Sent)
    [edit] = CONTENTS.edit(place, placeholder.event_id, "done", failed=False, our_id="e")
    assert isinstance(await rooms.send("scout", room_id, "e", MESSAGE, edit), Sent)

    def edited(event: Event) -> bool:
        return bool(event["content"].get("m.new_content", {}).get("body") == "done")

    await alice.until(room_id, edited, "the edit")
    path = f"/rooms/{room_id}/event/{placeholder.event_id}"
    shown = await alice.call("GET", path)
    bundled = shown["unsigned"]["m.relations"]
    assert bundled["m.replace"]["content"]["m.new_content"]["body"] == "done"
    assert bundled["m.thread"]["count"] == 2
    assert shown["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": asked}}
