from memagent.messages import Usage
from memagent.run.result import Estimate, Result, SessionResult
from memagent.trajectory import StopReason, Trajectory


def result(**changes: object) -> Result:
    fields: dict[str, object] = {
        "question": "Who <b>?",
        "answer": "Pierre & Natásha",
        "memory": "They married.\n<script>alert(1)</script>",
        "stop_reason": StopReason.ANSWERED,
        "usage": Usage(calls=684, prompt_tokens=4_430_000, completion_tokens=38_000),
        "chunks": 683,
        "run_id": "r1",
        "trajectory": Trajectory([], "Pierre & Natásha", StopReason.ANSWERED),
        **changes,
    }
    return Result(**fields)  # type: ignore[arg-type]


def test_a_result_shows_what_matters_on_one_line() -> None:
    shown = repr(result())
    assert shown == (
        "Result(answer='Pierre & Natásha', stop_reason='answered', chunks=683, calls=684, "
        "prompt_tokens=4430000, completion_tokens=38000, run_id='r1')"
    )
    lost = result(usage=Usage(retries=3, retry_tokens=900))
    assert "calls=0, prompt_tokens=0, completion_tokens=0, retries=3, retry_tokens=900" in repr(
        lost
    )
    assert "3 retries (900 tokens)" in lost._repr_html_()
    stopped = result(answer=None, stop_reason=StopReason.LIMIT, detail="3 calls are used up")
    assert "answer=None (3 calls are used up)" in repr(stopped)


def test_a_notebook_shows_it_with_everything_escaped() -> None:
    page = result()._repr_html_()
    assert "Pierre &amp; Natásha" in page
    assert "<script>" not in page
    assert "Who &lt;b&gt;?" in page
    assert "684 calls" in page
    assert "None (why)" in result(answer=None, detail="why")._repr_html_()


def test_an_estimate_reads_as_a_sentence() -> None:
    estimate = Estimate(
        chunks=683,
        document_tokens=3_288_000,
        calls_min=684,
        calls_max=684,
        prompt_tokens=4_500_000,
        completion_tokens=600_000,
        window=8192,
        counter="utf8-bytes",
    )
    assert repr(estimate) == (
        "Estimate(684 calls over 683 chunks, at most 4,500,000 prompt and 600,000 completion tokens, "
        "window 8,192, counted by utf8-bytes)"
    )


def test_one_is_no_plural() -> None:
    page = result(chunks=1, usage=Usage(calls=1))._repr_html_()
    assert "1 chunk · 1 call · " in page
    assert "1 step · 1 summary · " in session(steps=1, summaries=1)._repr_html_()
    sizes = {"document_tokens": 9, "prompt_tokens": 9, "completion_tokens": 9, "window": 99}
    short = Estimate(chunks=1, calls_min=1, calls_max=2, counter="utf8-bytes", **sizes)
    assert "(1 to 2 calls over 1 chunk, at most" in repr(short)


def session(**changes: object) -> SessionResult:
    fields: dict[str, object] = {
        "task": "Add <b>up</b>",
        "answer": "42 & more",
        "stop_reason": StopReason.ANSWERED,
        "usage": Usage(calls=1_200, prompt_tokens=3_000_000, completion_tokens=20_000),
        "steps": 1_000,
        "summaries": 98,
        "run_id": "r1",
        "trajectory": Trajectory([], "42 & more", StopReason.ANSWERED),
        **changes,
    }
    return SessionResult(**fields)  # type: ignore[arg-type]


def test_a_session_shows_what_matters_on_one_line() -> None:
    assert repr(session()) == (
        "SessionResult(answer='42 & more', stop_reason='answered', steps=1000, summaries=98, calls=1200, "
        "prompt_tokens=3000000, completion_tokens=20000, run_id='r1')"
    )
    stopped = session(answer=None, stop_reason=StopReason.OUT_OF_STEPS, detail="no more steps")
    assert "answer=None (no more steps), stop_reason='out_of_steps'" in repr(stopped)
    cut = session(truncated=True)
    assert "answer='42 & more' (cut off), stop_reason" in repr(cut)
    assert "42 &amp; more (cut off)" in cut._repr_html_()


def test_a_notebook_shows_a_session_with_everything_escaped() -> None:
    page = session()._repr_html_()
    assert "Add &lt;b&gt;up&lt;/b&gt;" in page
    assert "42 &amp; more" in page
    assert "1,000 steps · 98 summaries" in page
    assert "None (why)" in session(answer=None, detail="why")._repr_html_()
