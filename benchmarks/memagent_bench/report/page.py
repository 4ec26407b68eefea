"""The page: templates filled with views. Texts come from models and documents, so everything is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

from memagent.terminal import amount, clean
from memagent.texts import plural, show_length
from memagent_bench.report.cells import Suite
from memagent_bench.report.charts import Chart, in_words, svg
from memagent_bench.report.compare import Contrast, find_contrast
from memagent_bench.report.facts import provenance_facts
from memagent_bench.report.failures import SHOWN
from memagent_bench.report.heatmap import blend
from memagent_bench.report.primary import Hypothesis
from memagent_bench.report.summary import summary
from memagent_bench.report.theme import variables
from memagent_bench.report.view import View
from memagent_bench.report.words import (
    NOTHING,
    between,
    interval,
    join_words,
    number,
    p_text,
    points,
    share,
    sign_points,
    span,
    suite_title,
)

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def page(
    views: Sequence[View],
    tests: Sequence[Hypothesis],
    cautions: Sequence[str],
    *,
    margin: float,
    named: bool,
    folders: Sequence[str],
) -> str:
    """Renders the whole page.

    Args:
        views: views of the suites, at least one.
        tests: the primary comparisons.
        cautions: sentences.
        margin: of non-inferiority, as a fraction.
        named: whether the primary cells were named, not chosen by default.
        folders: names of the folders read.
    """
    suites = [view.suite for view in views]
    return fill_template(
        "page.html.j2",
        {"summary": partial(summary, tests=tests, margin=margin)},
        views=views,
        tests=tests,
        cautions=cautions,
        facts=provenance_facts(suites),
        margin=f"{100 * margin:g}",
        named=named,
        folders=folders,
        listed=SHOWN,
        title=title(suites),
        byline=byline(suites),
        count=plural(sum(len(suite.records) for suite in suites), "record"),
    )


def fill_template(
    name: str, filters: Mapping[str, Callable[..., object]] = {}, **values: object
) -> str:
    """Renders a template, with what all pages share: style, colours, version.

    Args:
        name: of a template here that extends `base.html.j2`.
        filters: in addition to those of all pages.
        values: `title`, `byline`, `count`, `folders`, and what the template's content needs.
    """
    from markupsafe import Markup

    environment = _environment(**filters)
    css = environment.loader.get_source(environment, "page.css")[0] if environment.loader else ""
    text = environment.get_template(name).render(
        **values,
        version=metadata.version("memagent"),
        css=Markup(css),
        light=variables(dark=False),
        dark=variables(dark=True),
    )
    return clean(text)


def title(suites: Sequence[Suite]) -> str:
    """`RULER and Tracking, 8K to 1M tokens`."""
    lengths = sorted({length for suite in suites for length in suite.lengths})
    span = show_length(lengths[0])
    if len(lengths) > 1:
        span += f" to {show_length(lengths[-1])}"
    return f"{join_words([suite_title(suite.name) for suite in suites])}, {span} tokens"


def byline(suites: Sequence[Suite]) -> str:
    """Returns models, systems and days."""
    records = [record for suite in suites for record in suite.records]
    models = list(dict.fromkeys(record.provenance.model for record in records))
    systems = dict.fromkeys(record.system for record in records)
    when = span(record.started[:10] for record in records)
    return f"{join_words(models)} · {plural(len(systems), 'system')} · {when}"


def _environment(**more: Callable[..., object]) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("memagent_bench.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = more | {
        "amount": _amount,
        "between": between,
        "blend": blend,
        "cell": find_contrast,
        "counted": plural,
        "in_words": in_words,
        "interval": interval,
        "length_name": show_length,
        "number": number,
        "p_text": p_text,
        "pairing": _pairing,
        "percent": _percent,
        "points": points,
        "share": share,
        "signed": sign_points,
        "svg": _svg,
    }
    environment.filters.update(filters)  # pyright: ignore[reportUnknownMemberType]
    return environment


def _amount(value: float | None) -> str:
    return NOTHING if value is None else amount(value)


def _percent(part: float) -> str:
    return f"{sign_points(part)}%"


def _svg(chart: Chart, prefix: str) -> Markup:
    """Returns the chart as safe markup: matplotlib escapes the names in its own XML."""
    from markupsafe import Markup

    return Markup(svg(chart, prefix))


def _pairing(contrasts: Sequence[Contrast], same: str, different: str) -> str:
    """Says which differences are paired, and why."""
    kinds = {contrast.difference.paired for contrast in contrasts}
    if len(kinds) == 2:
        return f"Paired where {same}, else unpaired."
    return f"All are paired: {same}." if True in kinds else f"All are unpaired: {different}."
