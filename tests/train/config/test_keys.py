"""Every key is known by its dotted name, and a mistyped one finds its own."""

from __future__ import annotations

from pydantic import BaseModel

from memagent_train.config.keys import find_nearest, list_keys


class Source(BaseModel):
    task: str = "vt"
    weight: float = 1.0


class Data(BaseModel):
    sources: tuple[Source, ...] = ()
    by_name: dict[str, Source] | None = None
    lengths: tuple[int, ...] = ()


class Tree(BaseModel):
    name: str = ""
    children: tuple[Tree, ...] = ()


class Optimizer(BaseModel):
    lr: float = 1e-6


class Whole(BaseModel):
    steps: int = 1
    data: Data = Data()
    optimizer: Optimizer | None = None
    tree: Tree = Tree()


KNOWN = list_keys(Whole)


def test_keys_inside_of_lists_tables_and_choices_are_known() -> None:
    assert {"steps", "data.sources.task", "data.by_name.weight", "optimizer.lr"} <= set(KNOWN)


def test_a_class_that_holds_itself_is_walked_once() -> None:
    assert [key for key in KNOWN if key.startswith("tree")] == [
        "tree",
        "tree.name",
        "tree.children",
    ]


def test_the_nearest_is_of_the_same_section_first() -> None:
    assert find_nearest("data.length", KNOWN) == "data.lengths"
    assert find_nearest("data.sources.wieght", KNOWN) == "data.sources.weight"
    assert find_nearest("setps", KNOWN) == "steps"


def test_the_nearest_may_be_of_another_section() -> None:
    assert find_nearest("model.lr", KNOWN) == "optimizer.lr"
    assert find_nearest("optimiser.lrr", KNOWN) == "optimizer.lr"


def test_nothing_is_near_to_nonsense() -> None:
    assert find_nearest("xyzzy", KNOWN) is None
    assert find_nearest("optimizer.xyzzy", KNOWN) is None, "neither the section nor any of its keys"
