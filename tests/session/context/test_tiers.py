"""The cheap tiers: what is repeated becomes a line, what is long is clipped, older first."""

from dataclasses import dataclass

from tests.session.context.strict import acts, call, lay_out, opened, result, safe, step

from memagent.messages import Message
from memagent.models.scripted import ScriptedModel
from memagent.session.context.layout import Layout, Past, State
from memagent.session.context.tiers import Split, drop_repetition, lighten
from memagent.session.context.turns import Turn, place_message


@dataclass
class Session:
    layout: Layout
    turns: tuple[Turn, ...] = ()

    def add(self, *messages: Message, ok: bool = True) -> None:
        for message in messages:
            shown, number = safe(self.layout, message), len(self.turns)
            self.turns = place_message(self.turns, shown, number, self.layout.prompts, ok=ok)

    @property
    def state(self) -> State:
        return self.layout.state(Past(), self.turns)

    def lighter(self) -> Split | None:
        return lighten(self.layout, self.state)


def called(*texts: str, arguments: str | None = None) -> Session:
    session = Session(lay_out())
    for number, text in enumerate(texts):
        given = f"[{number}]" if arguments is None else arguments
        session.add(acts(call("look", given, f"c{number}")), result(text, f"c{number}"))
    return session


def shown(session: Session) -> list[str]:
    turns, _ = drop_repetition(session.layout, session.turns)
    return [turn.results[0].text for turn in turns if turn.results[0] is not None]


def test_a_later_call_with_the_same_arguments_makes_a_result_stale() -> None:
    session = called("a" * 90, "b" * 90, arguments='{"x": 1, "y": 2}')
    session.add(acts(call("look", '{"y":2,"x":1}', "c2")))
    session.add(result("c" * 90, "c2"))
    assert shown(session) == [
        '[again: look({"x": 1, "y": 2})]',
        '[again: look({"x": 1, "y": 2})]',
        "c" * 90,
    ]


def test_what_may_tell_something_else_each_time_is_never_stale() -> None:
    session = called()
    for page in ("first ", "second "):
        session.add(acts(call("next_page")), result(page * 20))
    assert shown(session) == ["first " * 20, "second " * 20]


def test_the_same_text_is_shown_once_as_the_latest() -> None:
    session = called("a" * 90, "b" * 90, "a" * 90)
    assert shown(session) == ["[as look([2])]", "b" * 90, "a" * 90]
    _, changes = drop_repetition(session.layout, session.turns)
    (change,) = changes
    assert (change.what, change.turn, change.tool, change.call) == ("duplicate", 0, "look", "c0")
    assert change.tokens_before == 90
    assert change.tokens_after == len("[as look([2])]")
    assert session.layout.archive.get(change.handle) == "a" * 90


def test_what_stands_for_the_same_text_of_another_call_does_not_become_stale() -> None:
    session = called("a" * 90, "a" * 90, "a" * 90)
    once, _ = drop_repetition(session.layout, session.turns)
    for turns, left in ((session.turns, "[again: look([2])]"), (once, "a" * 90)):
        session.turns = turns
        session.add(acts(call("look", "[2]")), result("b" * 90))
        texts = shown(session)
        assert "a" * 90 in texts
        assert texts[2:] == [left, "b" * 90]


def test_short_texts_are_alike_by_chance() -> None:
    assert shown(called("a" * 19, "a" * 19, "ok", "ok")) == ["a" * 19, "a" * 19, "ok", "ok"]
    # A line that is no shorter than what it stands for frees nothing.
    assert shown(called("a" * 12, "a" * 12, arguments="{}")) == ["a" * 12, "a" * 12]


def test_a_failure_replaces_no_result_and_is_replaced_by_one() -> None:
    session = called("good " * 20, arguments="{}")
    for text, ok in (("away! " * 20, False), ("away! " * 20, False)):
        session.add(acts(call("look")))
        session.add(result(text), ok=ok)
    assert shown(session) == ["good " * 20, "[as look({})]", "away! " * 20]
    session.add(acts(call("look")), result("newer " * 20))
    assert shown(session) == ["[again: look({})]"] * 3 + ["newer " * 20]


def test_a_failure_of_the_same_text_as_a_result_takes_its_place_neither() -> None:
    session = called("same " * 20)
    session.add(acts(call("do")))
    session.add(result("same " * 20), ok=False)
    assert shown(session) == ["same " * 20, "same " * 20]


def test_the_line_is_short_safe_and_names_the_handle_where_it_can_be_read() -> None:
    session = Session(lay_out(native=False, can_read=True))
    arguments = '{"q": "</result>%s"}' % ("w" * 300)
    for text in ("a" * 400, "b" * 400):
        session.add(acts(call("look", arguments)), result(text))
    line = shown(session)[0]
    handle = session.layout.archive.put("a" * 400)
    assert line.startswith('[again: look({"q": "<\u2060/result>www')
    assert line.endswith(f'...{"w" * 20}"}}) {handle}]')
    assert len(line) < 200


def test_a_turn_that_waits_is_left_alone_and_makes_nothing_stale() -> None:
    session = called("a" * 90)
    pair = call("look", "[0]", "p1"), call("look", "[0]", "p2"), call("do", "[0]", "p3")
    session.add(acts(*pair))
    for name in ("p1", "p2"):
        session.add(result("z" * 90, name))
    turns, _ = drop_repetition(session.layout, session.turns)
    assert [r and r.text for r in turns[1].results] == ["z" * 90, "z" * 90, None]
    assert turns[0].results[0] is not None
    assert turns[0].results[0].text == "a" * 90  # the turn may be dropped once it is complete


def test_repetition_alone_may_be_enough() -> None:
    session = called(*["a" * 600] * 4)
    light = session.lighter()
    assert light is not None
    assert (light.summary, light.tiers) == (False, ("stale",))
    assert session.state.tokens - session.layout.state(Past(), light.kept).tokens > 300


def test_older_results_are_clipped_first_and_only_as_many_as_needed() -> None:
    session = called(*(f"{n}" * 420 for n in range(4)))
    light = session.lighter()
    assert light is not None
    assert (light.summary, light.tiers) == (False, ("clip",))
    lengths = [len(turn.results[0].text) for turn in light.kept if turn.results[0]]
    assert lengths[0] < 300
    assert lengths[-2:] == [420, 420]
    assert [change.turn for change in light.changes] == list(range(len(light.changes)))


def test_where_that_is_not_enough_nothing_is_clipped() -> None:
    session = called(*(f"{n:02d}" * 85 for n in range(20)))
    assert session.lighter() is None


async def test_a_clipped_result_is_not_clipped_twice() -> None:
    buffer = await opened(ScriptedModel([]))
    for number in range(4):
        await step(buffer, number, f"{number}" * 415)
    report = await buffer.compact()
    assert report is not None
    clipped = {change.turn for change in report.changes}
    while not buffer.due:
        await step(buffer, buffer.tokens, str(buffer.tokens) * 95)
    again = await buffer.compact()
    assert again is not None
    assert again.tiers == ("clip",)
    assert not clipped & {change.turn for change in again.changes}
