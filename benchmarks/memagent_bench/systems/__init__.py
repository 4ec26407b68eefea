"""What is measured: the memory agent and what people use instead, behind one interface.

One of your own is a class with a `name` and an `answer`, made by a function (or the class itself) that takes
the `Setting`. With `mine.py` on the import path it is named as `--systems memory,mine:FirstLine`:

```python
from memagent_bench.systems.base import Outcome, Setting


class FirstLine:
    name = "first-line"

    def __init__(self, setting: Setting) -> None:
        self.model = setting.model  # shared by all systems, with retries and limits around it

    async def answer(self, sample, run_id: str) -> Outcome:
        return Outcome(answer=sample.context.partition("\\n")[0])
```

It may look at `sample.context`, `sample.question` and `sample.generate`, never at the references. It raises where
a call failed: an error is a sample without an answer, and no answer at all is better than an empty one. `asking`
has what the systems here ask with.
"""
