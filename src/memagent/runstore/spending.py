"""What runs cost, and when."""

from memagent.messages import Usage
from memagent.runstore.database import Database

# SUM fails beyond 63 bits, and a server may have reported anything: this stops at the largest integer.
_SUM = "CAST(TOTAL(json_extract(usage, '$.{}')) AS INTEGER)"
_SUMS = ", ".join(map(_SUM.format, Usage.model_fields))
_QUESTION = "CASE WHEN kind GLOB '*/q[0-9]*' THEN CAST(substr(kind, instr(kind, '/q') + 2) AS INTEGER) ELSE 0 END"
_COSTS = f"SELECT {_QUESTION}, {_SUMS} FROM effects WHERE run = ? GROUP BY 1"
_PAID = "SELECT committed, usage FROM effects WHERE run = ? AND json_extract(usage, '$.calls') > 0"
_IN_FLIGHT = "SELECT COALESCE(SUM(sent), 0) FROM effects WHERE run = ? AND committed IS NULL AND kind NOT GLOB 'tool*'"


class Spending:
    """The part of a run store that adds up costs."""

    _db: Database

    def usage(self, run_id: str, question: int | None = None) -> Usage:
        """Returns the cost of the run's calls, for one question or all. A tool session is one question."""
        costs = self.usages(run_id)
        return sum(costs.values(), Usage()) if question is None else costs.get(question, Usage())

    def spent(self, run_id: str) -> Usage:
        """Returns the cost of the run so far, with the calls that were in flight when a session of it ended."""
        ((calls,),) = self._db.read(_IN_FLIGHT, (run_id,))
        return self.usage(run_id) + Usage(repeated=calls)

    def usages(self, run_id: str) -> dict[int, Usage]:
        """Returns the cost of each question's calls; a question without effects is missing."""
        costs: dict[int, Usage] = {}
        for number, *row in self._db.read(_COSTS, (run_id,)):
            costs[number] = Usage(**dict(zip(Usage.model_fields, row, strict=True)))
        return costs

    def payments(self, run_id: str) -> list[tuple[float, Usage]]:
        """Returns when the run's calls were committed, in seconds since the epoch, and their cost, oldest first."""
        rows = self._db.read(f"{_PAID} AND committed IS NOT NULL ORDER BY committed", (run_id,))
        return [(committed, Usage.model_validate_json(usage)) for committed, usage in rows]
