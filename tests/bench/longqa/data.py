"""Small data files, made on the fly."""

import json
from pathlib import Path

FIRST = [
    "Ana Brel", "Bo Carter", "Cyd Dunn", "Dag Ekman", "Eva Falk", "Finn Gray", "Gus Holm", "Hal Irons",
    "Ida Jarl", "Jon Kern", "Kim Lund", "Leo Moor", "Mia Noor", "Ned Olin", "Ola Park",
]  # fmt: skip
TOWNS = ["Arle", "Bruck", "Celm", "Dorn", "Esk", "Falun"]


def story(i: int, sentences: int = 3) -> str:
    """A paragraph that is like no other."""
    return " ".join(
        f"Report {i}.{j} of the {TOWNS[(i + j) % 6]} office counted {i * 37 + j} sheep and {j * i} goats."
        for j in range(1, sentences + 1)
    )


def hotpot(questions: int = 6, paragraphs: int = 10) -> list[dict]:
    """Questions of HotpotQA's form, each with 2 gold paragraphs and others; titles are `Place 12`."""
    entries = []
    for q in range(questions):
        person, town = FIRST[q], f"Town of {FIRST[-q - 1]}"
        context = [
            [f"Place {q}.{i}", [story(100 * q + i), " It lies far off."]]
            for i in range(paragraphs - 2)
        ]
        context.insert(3, [person, [f"{person} is a poet.", f" {person} was born in the {town}."]])
        context.insert(6, [town, [f"The {town} has {q + 40} bridges.", " Most are of stone."]])
        entries.append(
            {
                "_id": f"id{q}",
                "question": f"How many bridges has the birthplace of {person}?",
                "answer": f"{q + 40} bridges",
                "type": "bridge",
                "level": "hard",
                "supporting_facts": [[person, 1], [town, 0]],
                "context": context,
            }
        )
    return entries


def squad(articles: int = 5, paragraphs: int = 6) -> dict:
    """Articles of SQuAD's form, one answerable and one impossible question to each paragraph."""
    data = []
    for a in range(articles):
        parts = []
        for p in range(paragraphs):
            n = 1000 + 100 * a + p
            qas = [
                {"id": f"{a}{p}", "question": f"How many mills had {n}?", "is_impossible": False,
                 "answers": [{"text": f"{n} mills"}, {"text": f"{n}"}, {"text": f"{n} mills"}]},
                {"id": f"{a}{p}x", "question": "Why?", "is_impossible": True, "answers": []},
            ]  # fmt: skip
            parts.append({"context": f"In that year {n} mills stood. {story(n)}", "qas": qas})
        data.append({"title": f"Old_Mills_{a}", "paragraphs": parts})
    return {"version": "v2.0", "data": data}


def titled(n: int = 40) -> list[dict]:
    return [{"title": f"Further {i}", "text": story(5000 + i, 4)} for i in range(n)]


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
