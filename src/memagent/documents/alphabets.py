"""Distinguishes the single-byte encodings of Latin alphabets, even in short texts."""

import re

_CENTRAL = (
    "ąćęłńóśźż",  # Polish
    "áäčďéěíĺľňóôŕřšťúůýž",  # Czech, Slovak
    "áéíóöőúüű",  # Hungarian
    "čćđšž",  # Croatian, Slovene
    "ăâîşţ",  # Romanian
)
# Each language's letters beyond ASCII, under the encoding of its texts.
_ALPHABETS = {
    "cp1252": (
        "àâæçéèêëîïôœùûüÿ",  # French
        "äöüßéèà",  # German
        "áéíóúüñçàèòïªº",  # Spanish, Catalan
        "áâãàçéêíóôõúüªº",  # Portuguese
        "àèéìíîòóùúªº",  # Italian
        "éëèïöüóê",  # Dutch
        "åäöéüà",  # Swedish, Finnish
        "æøåéèòôäö",  # Danish, Norwegian
        "áðéíóúýþæö",  # Icelandic
        "õäöüéšž",  # Estonian
    ),
    "cp1250": _CENTRAL,
    "cp1257": ("ąčęėįšųūž", "āčēģīķļņšūž"),  # Lithuanian, Latvian
    "cp1254": ("çğıöşüâîû",),  # Turkish
    "iso8859-2": _CENTRAL,  # last: a text that fits an encoding above is in that one
}
_FOREIGN = 0.05
"""Maximum share of foreign letters, from names and quotations. A wrong alphabet lacks 10% of the letters or more."""
_ACCENTED = 0.4
"""Maximum share of letters beyond ASCII: texts in these languages have up to a fifth, other scripts nearly all."""
_CONTROL = re.compile("[\x80-\x9f]")
_LETTER = r"[^\W\d_]"
_INSIDE = re.compile(rf"(?<={_LETTER})[^\w\x00-\x7f’‘–—…·\xa0\xad](?={_LETTER})")
"""A symbol inside a word, where the right encoding would give a letter."""


def encoding_by_letters(sample: bytes) -> str | None:
    """Returns the encoding in which nearly all letters of `sample` beyond ASCII belong to one language, or None."""
    for encoding, alphabets in _ALPHABETS.items():
        try:
            text = sample.decode(encoding).lower()
        except UnicodeDecodeError:
            continue
        letters = [char for char in text if char > "\x7f" and char.isalpha()]
        if len(letters) > _ACCENTED * sum(map(str.isalpha, text)) or _CONTROL.search(text):
            continue
        signs = len(_INSIDE.findall(text))
        for alphabet in alphabets:
            if signs + sum(char not in alphabet for char in letters) <= _FOREIGN * len(letters):
                return encoding
    return None
