from memagent.tools import docstring


def full(query, limit, mode, *rest):
    """Searches the pages
    for a word.

    More about it, which is not the summary.

    Args:
        query: what to look for:
            a word, or several.
        limit (int, optional): most results.

        mode (Literal["a", "b"]):
            Which one.
        *rest: the others

    Returns:
        results: not a parameter.
    """


def only_arguments(a):
    """Args:
    a: one.
    """


def bare():
    pass


def test_the_first_paragraph_is_the_summary() -> None:
    assert docstring.summary(full) == "Searches the pages for a word."


def test_each_parameter_is_described() -> None:
    assert docstring.parameters(full) == {
        "query": "what to look for: a word, or several.",
        "limit": "most results.",
        "mode": "Which one.",
        "rest": "the others",
    }


def test_no_docstring_says_nothing() -> None:
    assert (docstring.summary(bare), docstring.parameters(bare)) == ("", {})


def test_a_docstring_without_a_summary_has_none() -> None:
    assert docstring.summary(only_arguments) == ""
