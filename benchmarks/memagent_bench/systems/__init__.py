"""The systems to measure: the memory agent and the usual alternatives, behind one interface.

Your own system is a class with a `name` and an `answer`, made by a function (or the class itself) that takes
the `Setting`. With `mine.py` on the import path, use `--systems memory,mine:FirstLine`:

```python
from memagent_bench.systems.base import Outcome, Setting


class FirstLine:
    name = "first-line"

    def __init__(self, setting: Setting) -> None:
        self.model = setting.model  # shared by all systems, with retries and limits around it

    async def answer(self, sample, run_id: str) -> Outcome:
        return Outcome(answer=sample.context.partition("\\n")[0])
```

It may use `sample.context`, `sample.question` and `sample.generate`, never the references. It must raise if
a call failed: an error means a sample without an answer, which is better than an empty answer. `asking`
has the calls that the systems here use.
"""
