"""YAML from outside is read here, and nowhere else: plain data, of a bounded depth and size, numbers as they look.

YAML 1.1 takes `1:2:3` for a number to base 60, and `0x` with any number of digits for one too large to be printed: both
are refused, with their line.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import yaml

from privacy.errors import InputError

MAX_DEPTH = 20
MAX_NUMBER = 40  # characters
MAX_VALUE = 100_000  # characters of a value on the command line


class PlainLoader(yaml.SafeLoader):
    """This is the safe loader, refusing aliases, tags, depth, keys given twice and numbers nobody writes."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise problem("aliases (*name) are not read; write the values out", self.peek_event().start_mark)
        if getattr(self.peek_event(), "tag", None) is not None:
            raise problem("tags (!name) are not read; write the value alone", self.peek_event().start_mark)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise problem("nested too deeply", self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    raise problem(f"'{key.value[:MAX_NUMBER]}' is given twice; keep one", key.start_mark)
                seen.add(str(key.value))
        return node

    def plain_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number as it looks."""
        return self.construct_yaml_int(_number(node))

    def plain_float(self, node: yaml.ScalarNode) -> float:
        """Return a number as it looks."""
        return self.construct_yaml_float(_number(node))


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.plain_int)
PlainLoader.add_constructor("tag:yaml.org,2002:float", PlainLoader.plain_float)


def composed(text: str) -> tuple[PlainLoader, yaml.Node | None]:
    """Return a document's tree and what makes values of it, by libyaml's events: these take a fifth of the time.

    Where libyaml is not there or refuses the text, Python's parser reads it, so that errors are the same everywhere.
    Raises `yaml.YAMLError`.
    """
    if yaml.__with_libyaml__:
        with suppress(yaml.YAMLError, ValueError):
            loader, events = PlainLoader(""), vars(yaml.cyaml)["CParser"](text)
            for name in ("check_event", "peek_event", "get_event"):
                setattr(loader, name, getattr(events, name))
            return loader, loader.get_single_node()
    loader = PlainLoader(text)
    return loader, loader.get_single_node()


def value_of(text: str, source: str, mend: str) -> Any:
    """Return a value that was given by itself. Raises `InputError` that begins with `source` and ends with `mend`.

    >>> value_of("[1, 0.5, inf]", "--set x", "quote it")
    [1, 0.5, 'inf']
    """
    if len(text) > MAX_VALUE:
        raise InputError(f"{source[:MAX_NUMBER]}...: the value has more than {MAX_VALUE:,} characters")
    try:
        return yaml.load(text, Loader=PlainLoader)  # noqa: S506  # it is a safe loader
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        why = f" ({error.problem})" if isinstance(error, Refused) else ""
        raise InputError(f"{source}: {mend}{why}") from None


class Refused(yaml.MarkedYAMLError):
    """This is valid YAML that is not read."""


def problem(what: str, mark: yaml.Mark) -> Refused:
    """Make the error for what stands at a mark."""
    return Refused(problem=what, problem_mark=mark)


def _number(node: yaml.ScalarNode) -> yaml.ScalarNode:
    """Return a number's node; raises `Refused` for one that is not what it looks like."""
    if not isinstance(node, yaml.ScalarNode):
        raise problem("a number is expected here", node.start_mark)
    if len(node.value) > MAX_NUMBER:
        raise problem(f"a number has more than {MAX_NUMBER} characters", node.start_mark)
    if ":" in node.value:
        raise problem(f"{node.value} is a number to base 60; quote it, or write it out", node.start_mark)
    return node
