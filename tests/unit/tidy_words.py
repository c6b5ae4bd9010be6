"""Rules for words: how docstrings begin, words that make riddles of sentences, names of functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.unit.tidy import find

FUNCTION_WORDS = re.compile(
    r"""(?ix)
    about | above | after | against | also | although | among | and | anything | as | at | because
    | before | behind | below | beside | besides | between | both | but | by | either | even |
    everything | for | from | how | if | in | inside | into | it | its | just | like | neither | nobody
    | nor | not | nothing | of | on | once | only | onto | or | over | per | since | so | somebody |
    still | than | that | their | them | then | these | they | this | those | though | through | to |
    under | unless | until | upon | what | when | where | whether | which | while | who | whoever |
    whose | why | with | within | without
    """
)
"""Words with which no docstring begins: it begins with a verb, or with the noun it is about."""

RIDDLES = re.compile(
    r"\b(nobody|somebody|whoever|told|anew|beside|in vain|for good|goes on|of ours|of theirs|held back)\b",
    re.IGNORECASE,
)
"""Words that hide who acts, or stand for a term of the field."""

NAME_RIDDLES = re.compile(
    r"(?:^|_)(nobody|somebody|whoever|anew|go(?:es)?_on|going_on|of_ours|of_theirs|held_back|in_vain|for_good|patience"
    r"|beside|rooms?|judg(?:e|es|ed)|deals?|dealt|told|tells?)(?:_|$)"
)
"""The same in names of functions."""

PROSE_RIDDLES = re.compile(
    RIDDLES.pattern.replace(" ", r"\s+")
    + r"|\b(tells?|(go|going|went)\s+on|of\s+others|hold(s|ing)?\s+back|rooms?|look(s|ed|ing)?\s+at"
    + r"|deals?|dealt|dealing|judg(e|es|ed|ing|ements?)|sicken|heals?|shun(s|ned)?|patience"
    + r"|stands?\s+alone|(is|are|was|were)\s+away)\b",
    re.IGNORECASE,
)
"""The same for documents, in which no identifier hides a word."""
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`[^`\n]*`|\]\([^)\s]*\)|https?://\S+|[\w/]+\.(?:py|md|yaml)\b")
"""Names, links and paths in a document: they are the code's."""
GENERATED_PAGES = {"docs/cli.md", "docs/errors.md", "docs/permissions.md", "docs/pod-states.md", "docs/host-state.md"}

PARTICIPLE = re.compile(r"\w+ed|told|said|kept|held|made|sent|seen|found|known|lost|left|gone|dealt|taken|given|begun")
VERBS_IN_ED = {"need", "feed", "seed", "embed", "exceed", "proceed", "succeed", "shed"}

BUDGETS = {
    "product": {"odd": 0, "riddles": 0, "participles": 19},
    "tests": {"odd": 0, "riddles": 0, "participles": 62},
}
"""Faults that are left."""
PROSE_BUDGETS = {"documents": 0, "protos": 0}
"""Riddles that are left in Markdown files, without the change log, and in comments of .proto files."""
SPARE = 20
"""Distance of a budget above its count from which the budget has to be lowered."""
SHOWN_MAX = 20


class Words(NamedTuple):
    """Faults of a part of the tree, as ``file:line: what``."""

    docstrings: int
    words: int
    odd: list[str]  # docstrings that begin with a function word
    riddles: list[str]
    participles: list[str]  # functions, but properties, whose name begins with a participle


def word_faults(paths: Iterator[tuple[Path, ast.Module]]) -> Words:
    odd: list[str] = []
    riddles: list[str] = []
    participles: list[str] = []
    docstrings = words = 0
    for path, tree in paths:
        for line, text in docstrings_of(tree):
            found = text.split()
            docstrings, words = docstrings + 1, words + len(found)
            if found and FUNCTION_WORDS.fullmatch(found[0].strip(",.:;")):
                odd.append(f"{path}:{line}: {text[:60]!r} begins with a function word")
            riddles += [f"{path}:{line}: {word!r}" for word in RIDDLES.findall(" ".join(found))]
        functions = find(tree, ast.FunctionDef, ast.AsyncFunctionDef)
        riddles += [f"{path}:{node.lineno}: {node.name}" for node in functions if NAME_RIDDLES.search(node.name)]
        participles += [f"{path}:{line}: {name} is named by a participle" for line, name in participles_of(tree)]
    return Words(docstrings, words, odd, riddles, participles)


def prose_of(path: Path, text: str) -> str:
    """Text of a document, or the comments of a .proto file, without names and code; lines keep their numbers."""
    if path.suffix == ".proto":
        return "\n".join(QUOTED.sub("", line.partition("//")[2]) for line in text.splitlines())
    text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    return QUOTED.sub("", text)


def prose_faults(path: Path, text: str) -> Iterator[str]:
    """Riddles in the prose of a document or of a .proto file, as ``file:line: word``."""
    prose = prose_of(path, text)
    for match in PROSE_RIDDLES.finditer(prose):
        line = prose.count("\n", 0, match.start()) + 1
        yield f"{path}:{line}: {' '.join(match[0].split())!r}"


def docstrings_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, of constants and fields as well."""
    for node in find(tree, ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        body = node.body
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for at, statement in enumerate(body[:1] if is_function else body):
            is_first = at == 0
            if (is_first or isinstance(body[at - 1], (ast.Assign, ast.AnnAssign))) and isinstance(statement, ast.Expr):
                value = statement.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield statement.lineno, value.value.strip()


def participles_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each function that begins with a participle. Properties are values, and tests sentences."""
    for node in find(tree, ast.FunctionDef, ast.AsyncFunctionDef):
        if node.name.startswith("test_"):
            continue
        first = node.name.strip("_").partition("_")[0]
        is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        if not is_property and PARTICIPLE.fullmatch(first) and first not in VERBS_IN_ED:
            yield node.lineno, node.name
