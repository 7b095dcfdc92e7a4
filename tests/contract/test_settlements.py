"""Settlements of many parts: the markers of a settlement are written in one step, each for its own
entry, whatever became of the others. (One part at a time: test_transport.py.)"""

from corral.cowboy import redisconn
from corral.cowboy.transport import SETTLE_MAX
from tests.contract.kit import Backend, House
from tests.contract.test_transport import DEAD, OUTBOX, answer, attached


async def test_each_marker_names_its_own_entry(every_backend: Backend) -> None:
    """Known ones between new ones, asked for in another order."""
    async with House(every_backend, only=("echo",)) as house, attached(house) as one:
        first = await one.settle(answer("t1"), answer("t3"))
        both = await one.settle(*(answer(f"t{n}") for n in (4, 3, 2, 1)))
        added = {one_of.outbox_id: one_of.turn_id for one_of in await house.outbox("echo")}
        names = ["t1", "t3", *(f"t{n}" for n in (4, 3, 2, 1))]
        for name, (outbox_id, _) in zip(names, first.effects + both.effects, strict=True):
            assert isinstance(outbox_id, bytes)
            assert added[outbox_id.decode()] == name
            assert await house.admin("HGET", one.config.replies_key, name) == outbox_id
        assert len(added) == 4


async def test_what_was_added_beside_a_refusal_keeps_its_marker(backend: Backend) -> None:
    """The dead letter is in, the outbox refuses: the letter must not be added again."""
    async with House(backend, only=("echo",)) as house, attached(house) as one:
        await house.admin("SET", OUTBOX, "not a stream")
        parts = (answer("t1:dead", dead=True), answer("t1"), answer("t2:dead", dead=True))
        settled = await one.settle(*parts)
        letter, fault, other = (found[0] for found in settled.effects)
        assert isinstance(fault, redisconn.Refused)
        assert sorted(await one.settler.markers()) == ["t1:dead", "t2:dead"]
        await house.admin("DEL", OUTBOX)
        again = await one.settle(*parts)
        assert [again.effects[0][0], again.effects[2][0]] == [letter, other]
        assert (await house.admin("XLEN", DEAD), await house.admin("XLEN", OUTBOX)) == (2, 1)


async def test_a_full_settlement_is_done_whole(every_backend: Backend) -> None:
    """As many effects as one settlement may carry, then all of their markers at once."""
    names = [f"t{number}" for number in range(SETTLE_MAX)]
    async with House(every_backend, only=("echo",)) as house, attached(house) as one:
        settled = await one.settle(*map(answer, names))
        assert len({found[0] for found in settled.effects}) == SETTLE_MAX
        assert set(await one.settler.markers()) == set(names)
        assert await house.admin("XLEN", OUTBOX) == SETTLE_MAX
