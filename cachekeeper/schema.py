"""JSON from a store -> values of our types, checked by pydantic's core.

The schemas are made straight from the type hints: building the same with `pydantic.TypeAdapter` costs 70 ms more at
start, a quarter of what `cachekeeper ls` takes.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic_core import CoreSchema, SchemaValidator, core_schema

_PLAIN = {
    str: core_schema.str_schema(strict=True),
    int: core_schema.int_schema(strict=True),
    float: core_schema.float_schema(strict=True, allow_inf_nan=False),
    bool: core_schema.bool_schema(strict=True),
}


def parse(kind: type, raw: bytes) -> Any:
    """JSON as a value of a type: a dataclass, or the rows of a NamedTuple as tuples.

    Raises:
        ValueError: it is not JSON, or not of that form.
    """
    return _validator(kind).validate_json(raw)


@functools.cache
def _validator(kind: Any) -> SchemaValidator:
    return SchemaValidator(_schema(kind))


def _schema(kind: Any) -> CoreSchema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if dataclasses.is_dataclass(kind):
        return _dataclass_schema(kind)
    if hasattr(kind, "_fields"):
        return core_schema.tuple_schema([_schema(hint) for hint in get_type_hints(kind).values()])
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        if arguments[-1] is Ellipsis:
            return core_schema.tuple_schema([_schema(arguments[0])], variadic_item_index=0)
        return core_schema.tuple_schema([_schema(argument) for argument in arguments])
    if get_origin(kind) is Mapping:
        return core_schema.dict_schema(_schema(arguments[0]), _schema(arguments[1]))
    if get_origin(kind) in (Union, types.UnionType) and len(arguments) == 2 and arguments[1] is types.NoneType:
        return core_schema.nullable_schema(_schema(arguments[0]))
    return core_schema.any_schema()


def _dataclass_schema(kind: Any) -> CoreSchema:
    hints = get_type_hints(kind)
    fields = [
        core_schema.dataclass_field(field.name, _field_schema(field, hints)) for field in dataclasses.fields(kind)
    ]
    return core_schema.dataclass_schema(
        kind,
        core_schema.dataclass_args_schema(kind.__name__, fields),
        [field.name for field in dataclasses.fields(kind)],
    )


def _field_schema(field: dataclasses.Field[Any], hints: Mapping[str, Any]) -> CoreSchema:
    schema = _schema(hints[field.name])
    if field.default_factory is not dataclasses.MISSING:
        return core_schema.with_default_schema(schema, default_factory=field.default_factory)
    if field.default is dataclasses.MISSING:
        return schema
    return core_schema.with_default_schema(schema, default=field.default)
