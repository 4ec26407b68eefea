"""The suites by name."""

from __future__ import annotations

from memagent.errors import ConfigError
from memagent_bench.outside.base import Suite
from memagent_bench.outside.bfcl import Bfcl
from memagent_bench.outside.browsecomp import BrowseCompPlus
from memagent_bench.outside.codegym import CodeGym
from memagent_bench.outside.repair import Repair
from memagent_bench.suites import one_of

SUITES: dict[str, Suite] = {
    suite.name: suite for suite in (CodeGym(), BrowseCompPlus(), Repair(), Bfcl())
}


def suite_of(name: str, *, accepted: bool) -> Suite:
    """Returns a suite by its name.

    Raises:
        ConfigError: there is no such suite, or its licence isn't accepted.
    """
    suite = SUITES[one_of(name, SUITES, "suite")]
    if suite.licence and not accepted:
        raise ConfigError(
            f"{suite.licence}. If that fits your use, repeat the command with --accept-licence"
        )
    return suite
