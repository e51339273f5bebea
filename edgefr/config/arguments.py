"""Arguments of public functions are checked before these run, so that a wrong one is said in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import InstanceOf, TypeAdapter, ValidationError

from privacy.errors import InputError, unknown
from privacy.extras import asked_for


def at_least_one(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < 1:
            raise InputError(f"{name} is a whole number of at least 1, got {value}")


Given = ParamSpec("Given")
Result = TypeVar("Result")
OWN = ("self", "cls")
NUMBERS = {int: Integral, float: Real}
"""Numbers of numpy are numbers too."""
MANY = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def checked(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Refuse arguments that are not of the function's types, by an `InputError` that names argument and types.

    Nothing is converted. Arguments that are missing or unknown are refused in the same way, and so is a call that needs
    an extra which is not installed.

    >>> @checked
    ... def twice(number: int) -> int:
    ...     return 2 * number
    >>> twice("a")
    Traceback (most recent call last):
    privacy.errors.InputError: twice: number should be int, got 'a'
    """
    signature, called = inspect.signature(function), function.__qualname__.removesuffix(".__init__")  # a class
    taken = [name for name, parameter in signature.parameters.items() if parameter.kind not in MANY]

    @wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            wrong = next((key for key in kwargs if key not in taken), None)
            if wrong is not None:
                raise unknown(f"argument of {called}", wrong, taken) from None
            raise InputError(f"{called}: {error}; it takes {', '.join(taken)}") from None
        for name, value in bound.arguments.items():
            if name in taken and name not in OWN and not _fits(_types(function)[name], value):
                wanted = inspect.formatannotation(signature.parameters[name].annotation).strip("'")
                shown = " ".join(repr(value).split())
                shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
                raise InputError(f"{called}: {name} should be {wanted}, got {shown}") from None
        try:
            return function(*args, **kwargs)
        except ModuleNotFoundError as error:
            raise asked_for(error) or error from error

    return call


@cache
def _types(function: Callable[..., Any]) -> dict[str, TypeAdapter[Any]]:
    """Return what checks a value of each argument."""
    arguments = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    hints = get_type_hints(SimpleNamespace(__annotations__=arguments), function.__globals__)
    return {name: TypeAdapter(_instances(hint)) for name, hint in hints.items()}


def _instances(hint: Any) -> Any:
    """Return the type with classes as they are: no mapping is taken for settings, no text for a number."""
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return Union[tuple(map(_instances, get_args(hint)))]  # noqa: UP007 - of types known when it runs
    if get_origin(hint) is Sequence:
        return Sequence[_instances(*get_args(hint))]  # type: ignore[misc]
    if hint is Any or not isinstance(hint, type) or get_origin(hint) is not None:
        return hint
    return Annotated[NUMBERS.get(hint, hint), InstanceOf()]


def _fits(wanted: TypeAdapter[Any], value: Any) -> bool:
    try:
        wanted.validate_python(value)
    except ValidationError:
        return False
    return True
