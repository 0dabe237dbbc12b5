"""The arguments of a job: checked when it is enqueued, stored as a JSON object, checked again when it runs.

The handler's signature is the schema. Each parameter becomes a field of its name; `*args` a list and `**kwargs` an
object below theirs. Annotations are pydantic's: models, dataclasses, dates, UUIDs come back as what they were. Without
an annotation (or with Any) an argument must be what JSON keeps as it is: a tuple would come back as a list.

Refused when enqueueing, for it would not come back, or come back changed: NUL characters, lone surrogates, NaN and
infinities, whole numbers of more than 64 bits.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, NotRequired

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from pgq_py.client.jobtext import contains_no_number, exact_json, shortened
from pgq_py.errors import InvalidArgument

__all__ = ["Arguments"]

_NOT_ENQUEUED = "Nothing was enqueued."

_VAR = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_LOOSE = (Any, object, dict, list, tuple, set, frozenset)


class Arguments:
    """Encodes and decodes the arguments of one handler.

    `context_name` is the parameter annotated with `context_type`, which is no argument of the job; None when there is
    none. Raises InvalidArgument for a signature that cannot be read, or that pydantic has no schema for.
    """

    def __init__(self, handler: Callable[..., Any], name: str, context_type: type) -> None:
        self._name = name
        hints = _hints(handler, name)
        signature = inspect.signature(handler)
        self.context_name = _context_name(signature, hints, context_type, name)
        parameters = [p for p in signature.parameters.values() if p.name != self.context_name]
        self._signature = signature.replace(parameters=parameters)
        self._names = tuple(p.name for p in parameters)
        self._plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        self._loose = tuple(p.name for p in parameters if _is_loose(hints.get(p.name, Any)))
        adapter = _adapter(parameters, hints, name)
        # The adapter's own methods look after options that nobody gives here, for a third of the time.
        self._validate, self._validate_json = adapter.validator.validate_python, adapter.validator.validate_json
        self._dump = adapter.serializer.to_python

    def encode(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The JSON object of a call's arguments. Raises InvalidArgument when the handler could not be called so."""
        try:
            checked = self._validate(self._bind(args, kwargs))
        except ValidationError as exc:
            raise InvalidArgument(_explained(self._name, exc), advice=_NOT_ENQUEUED) from None
        try:
            plain = self._dump(checked, mode="json", warnings=False)
        except (PydanticSerializationError, UnicodeError, ValueError) as exc:
            raise InvalidArgument(
                f"arguments of job {self._name!r} are not JSON: {exc}", advice=_NOT_ENQUEUED
            ) from None
        text = exact_json(plain, f"arguments of job {self._name!r}")
        if "null" in text and contains_no_number(self._dump(checked, warnings=False)):
            raise InvalidArgument(
                f"arguments of job {self._name!r}: NaN and infinities are not JSON", advice=_NOT_ENQUEUED
            )
        if self._loose:
            self._check_loose(checked, text)
        return text

    def decode(self, payload: str) -> tuple[list[Any], dict[str, Any]]:
        """What to call the handler with. Raises InvalidArgument for a payload that it does not take."""
        try:
            given: dict[str, Any] = self._validate_json(payload)
        except ValidationError as exc:
            raise InvalidArgument(_explained(self._name, exc), advice="The handler was not called.") from None
        return ([], given) if self._plain else self._spread(given)

    def named(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments of a call by the names of their parameters, defaults included."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Values by parameter. Signature.bind costs ten times as much, so only signatures that need it get it."""
        if self._plain and len(args) <= len(self._names):
            given = dict(zip(self._names, args, strict=False)) if args else {}
            if not given.keys() & kwargs.keys():
                return {**given, **kwargs}
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as exc:
            raise InvalidArgument(f"job {self._name!r} cannot be called so: {exc}", advice=_NOT_ENQUEUED) from None

    def _spread(self, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        parameters = self._signature.parameters.values()
        has_rest = any(p.kind is p.VAR_POSITIONAL and given.get(p.name) for p in parameters)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for p in parameters:
            if p.name not in given:
                continue
            if p.kind in _VAR:
                (args.extend if p.kind is p.VAR_POSITIONAL else kwargs.update)(given[p.name])
            elif p.kind is p.POSITIONAL_ONLY or (has_rest and p.kind is p.POSITIONAL_OR_KEYWORD):
                args.append(given[p.name])
            else:
                kwargs[p.name] = given[p.name]
        return args, kwargs

    def _check_loose(self, checked: dict[str, Any], text: str) -> None:
        back = self._validate_json(text)
        for name in self._loose:
            if name in checked and checked[name] != back[name]:
                raise InvalidArgument(
                    f"argument {name!r} of job {self._name!r} would come back as {shortened(back[name])}, not "
                    f"{shortened(checked[name])}: annotate the parameter with its type",
                    advice=_NOT_ENQUEUED,
                )


def _hints(handler: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(handler, include_extras=True)
    except (NameError, TypeError) as exc:
        raise InvalidArgument(
            f"the annotations of job {name!r} cannot be read: {exc}",
            advice="Import at the top of the module, also at run time, what the handler's annotations name.",
        ) from exc


def _context_name(signature: inspect.Signature, hints: dict[str, Any], context_type: type, name: str) -> str | None:
    found = [p for p in signature.parameters.values() if hints.get(p.name) is context_type]
    if not found:
        return None
    if len(found) > 1 or found[0].kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        raise InvalidArgument(f"job {name!r} must take its {context_type.__name__} as one parameter that can be named")
    return found[0].name


def _is_loose(hint: Any) -> bool:
    """Whether a type leaves open what a value comes back as."""
    return hint in _LOOSE or any(_is_loose(part) for part in typing.get_args(hint))


def _adapter(parameters: list[inspect.Parameter], hints: dict[str, Any], name: str) -> TypeAdapter[dict[str, Any]]:
    fields: dict[str, Any] = {}
    for p in parameters:
        hint: Any = hints.get(p.name, Any)
        if p.kind in _VAR:
            hint = _generic(list, hint) if p.kind is p.VAR_POSITIONAL else _generic(dict, (str, hint))
        optional = p.kind in _VAR or p.default is not p.empty
        fields[p.name] = _generic(NotRequired, hint) if optional else hint
    make_shape: Any = TypedDict
    shape = make_shape(f"Arguments of {name}", fields)
    try:
        return TypeAdapter(with_config(ConfigDict(extra="forbid", ser_json_inf_nan="constants"))(shape))
    except (PydanticSchemaGenerationError, PydanticUserError) as exc:
        raise InvalidArgument(f"an argument of job {name!r} has a type that pydantic does not know: {exc}") from exc


def _generic(outer: Any, inner: Any) -> Any:
    """`outer[inner]` of types that are known at run time only."""
    return outer[inner]


def _explained(name: str, exc: ValidationError) -> str:
    """The first few complaints, without the values' types and links that pydantic's own text has."""
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(map(str, error['loc'])) or 'arguments'}: {error['msg']}" for error in errors[:5]]
    rest = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
    return f"arguments of job {name!r} are not valid: {'; '.join(told)}{rest}"
