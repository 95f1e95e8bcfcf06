"""Statements looked at by their tokens: where placeholders stand, and which INSERT takes one row of them."""

import re

from thalweg import _data
from thalweg._thalweg import QueryError, SchemaError

_TOKEN = re.compile(
    r"""(?P<skipped>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\w*\$.*?\$\w*\$)
      | (?P<placeholder>\?|\$\w+)
      | (?P<word>\w+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


def _tokens(text):
    """Kind, text and place of every token that means something."""
    return [(found.lastgroup, found.group(), found.start()) for found in _TOKEN.finditer(text) if found.lastgroup != "skipped"]


def placeholders(text):
    """The placeholders as they are written."""
    return [token for kind, token, _ in _tokens(text) if kind == "placeholder"]


def insert_of_all(text, rows, table):
    """The statement as one of all rows: an INSERT from `table`, and that table, made of `rows`; or one with VALUES of all rows, where a
    column has values of several types, and its parameters. None for every other statement.
    """
    tokens = _tokens(text)
    values = _values_of_one_row(tokens)
    if values is None or not rows:
        return None
    columns, placed = {}, []
    for kind, token, start in tokens[values + 2 :]:
        if kind == "placeholder":
            place = len(placed) if token == "?" else int(token[1:]) - 1 if token[1:].isdigit() else token[1:]
            placed.append((start, len(token), place))
            columns.setdefault(place, [])
    if not placed:
        return None
    for number, row in enumerate(rows):
        _check(row, columns, number)
        for place, column in columns.items():
            column.append(row[place])
    names = {place: f"parameter {place if isinstance(place, str) else place + 1}" for place in columns}
    head, start = text[: tokens[values][2]], tokens[values + 1][2]
    closing = tokens[-1] if tokens[-1][1] != ";" else tokens[-2]
    parts, at = [], start + 1
    for place_start, length, _ in placed:
        parts.append(text[at:place_start])
        at = place_start + length
    parts.append(text[at : closing[2]])
    places = [place for _, _, place in placed]
    # Among other words a value counts as what it is: 7 / 2 is not 7 / 2.0.
    is_plain = all(part.strip() in ("", ",") for part in parts)
    if not is_plain and any(len({type(value) for value in column if value is not None}) > 1 for column in columns.values()):
        return _values_of_all(head, parts, places, columns, len(rows))
    try:
        arrays = _data.from_columns({names[place]: column for place, column in columns.items()})
    except SchemaError:
        return _values_of_all(head, parts, places, columns, len(rows))
    body = _joined(parts, [f'"{names[place]}"' for place in places])
    return f'{head} SELECT {body} FROM "{table}"', arrays, None


def _values_of_all(head, parts, places, columns, rows):
    """VALUES of all rows, each value with a parameter of its own, as a statement of one row takes it."""
    number_of = {place: number for number, place in enumerate(columns)}
    numbers = [number_of[place] for place in places]
    firsts = range(1, rows * len(columns) + 1, len(columns))
    body = ", ".join(f"({_joined(parts, [f'${first + number}' for number in numbers])})" for first in firsts)
    return f"{head} VALUES {body}", None, [value for row in zip(*columns.values()) for value in row]


def _joined(parts, between):
    """The parts with what stands between them."""
    return "".join(text for pair in zip(parts, [*between, ""]) for text in pair)


def _values_of_one_row(tokens):
    """The place of VALUES, if the statement is INSERT INTO ... VALUES (...) and no more."""
    words = [token.lower() if kind == "word" else token for kind, token, _ in tokens]
    if words[:2] != ["insert", "into"] or "values" not in words:
        return None
    values = words.index("values")
    if words[-1:] == [";"]:
        words = words[:-1]
    depth = 0
    for place, word in enumerate(words[values + 1 :], values + 1):
        depth += (word == "(") - (word == ")")
        if depth == 0:
            return values if place == len(words) - 1 and word == ")" else None
    return None


def _check(row, columns, number):
    named = any(isinstance(place, str) for place in columns)
    if named != isinstance(row, dict) or isinstance(row, (str, bytes)) or not hasattr(row, "__getitem__"):
        wanted = "a dict for $name" if named else "a list for ? and $1"
        raise QueryError(f"row {number} is {row!r}; it must be {wanted}")
    if named:
        missing = [name for name in columns if name not in row]
        unknown = [name for name in row if name not in columns]
        if missing or unknown:
            wrong = f'lacks "{missing[0]}"' if missing else f'has "{unknown[0]}", which the statement does not name'
            raise QueryError(f"row {number} {wrong}")
    elif len(row) != max(columns) + 1:
        raise QueryError(f"row {number} has the wrong number of values, {len(row)} for {max(columns) + 1} parameters")
