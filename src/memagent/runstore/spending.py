"""What runs cost, and when."""

from memagent.messages import Usage
from memagent.runstore.database import Database

_SUMS = ", ".join(f"COALESCE(SUM(json_extract(usage, '$.{n}')), 0)" for n in Usage.model_fields)
_PAID = "SELECT committed, usage FROM effects WHERE run = ? AND json_extract(usage, '$.calls') > 0"


class Spending:
    """The part of a run store that adds up."""

    _db: Database

    def usage(self, run_id: str, question: int | None = None) -> Usage:
        """The cost of the run's calls, for one question or all. A tool session is one question."""
        where, values = "FROM effects WHERE run = ?", [run_id]
        if question is not None:
            of_session = "OR kind NOT GLOB '*/q[0-9]*'" if question == 0 else ""
            where, values = f"{where} AND (kind GLOB ? {of_session})", [run_id, f"*/q{question}"]
        found = self._db.read(f"SELECT {_SUMS} {where}", values)[0]
        return Usage(**dict(zip(Usage.model_fields, found, strict=True)))

    def payments(self, run_id: str) -> list[tuple[float, Usage]]:
        """When the run's calls were committed, in seconds since the epoch, and their cost; in that order."""
        found = self._db.read(f"{_PAID} AND committed IS NOT NULL ORDER BY committed", (run_id,))
        return [(committed, Usage.model_validate_json(usage)) for committed, usage in found]
