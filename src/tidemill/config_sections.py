"""Validation of ``tidemill.toml`` sections and request parameters: reports every problem with its path.

Models live beside the features that they configure. Import this module only where configuration is parsed:
most processes never need the models.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from tidemill.core.errors import InvalidSettings, format_suggestion
from tidemill.core.principal import Role

_CONFIG_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_QUOTED_CHOICE_PATTERN = re.compile(r"'([^']*)'")
_PLAIN_MESSAGES = {
    "dict_type": "Input should be a table",
    "model_type": "Input should be a table",
    "tuple_type": "Input should be a list",
}

T = TypeVar("T")
SizedT = TypeVar("SizedT", bound=Sized)


def _reject_duplicates(values: tuple[T, ...]) -> tuple[T, ...]:
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise ValueError(f'The list contains "{repeated[0]}" more than once')
    return values


def check_choice(value: str, choices: Collection[str]) -> str:
    """Return the value; raise ValueError with the choices and a suggestion if it is unknown."""
    if value not in choices:
        raise ValueError(_format_choice_problem(value, choices))
    return value


def _format_choice_problem(value: object, choices: Collection[str]) -> str:
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return f'must be one of {listed}, not "{value}"{format_suggestion(value, choices)}'


def _reject_empty(values: SizedT) -> SizedT:
    if not values:
        raise ValueError("Input should not be empty")
    return values


NonEmpty = AfterValidator(_reject_empty)  # pydantic's min_length also rejects lists whose entries are all invalid
Unique = AfterValidator(_reject_duplicates)
Text = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Text, ...], NonEmpty, Unique]
Roles = Annotated[tuple[Role, ...], Unique]


class ConfigTable(BaseModel):
    """One table of a section. It rejects unknown keys and reports conflicts between keys with all other problems."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterable[tuple[str, str]]:  # noqa: ARG003  models override it
        """Return conflicts between keys as (key, message). ``given`` is not validated yet."""
        return ()

    def get_explicit_values(self, *, exclude: Collection[str] = ()) -> dict[str, Any]:
        """Return the values that the table sets; the runtime model has the defaults."""
        return {name: value for name, value in self if name in self.model_fields_set and name not in exclude}

    @model_validator(mode="wrap")
    @classmethod
    def _validate_with_conflicts(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        problems = []
        if isinstance(given, Mapping):
            problems = [_make_pydantic_problem((key,) if key else (), text) for key, text in cls.find_conflicts(given)]
        try:
            table = validate(given)
        except ValidationError as error:
            problems += [_make_pydantic_problem(one["loc"], cls._format_message(one)) for one in error.errors()]
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return table

    @classmethod
    def _format_message(cls, problem: ErrorDetails) -> str:
        match problem["type"]:
            case "extra_forbidden":
                known = [field.alias or name for name, field in cls.model_fields.items()]
                return f"Unknown key{format_suggestion(problem['loc'][-1], known)}"
            case "literal_error" | "enum":
                choices = _QUOTED_CHOICE_PATTERN.findall(problem["ctx"]["expected"])
                return _format_choice_problem(problem["input"], choices)
            case other:
                return _PLAIN_MESSAGES.get(other, problem["msg"].removeprefix("Value error, "))


def _make_pydantic_problem(path: tuple[int | str, ...], message: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("config", "{message}", {"message": message}), loc=path, input=None)


TableT = TypeVar("TableT", bound=ConfigTable)


def parse_section(
    document: Mapping[str, Any],
    section: str,
    model: type[TableT],
    build: Callable[[str, TableT], T],
    *,
    names: re.Pattern[str] = _CONFIG_NAME_PATTERN,
    context: Mapping[str, Any] | None = None,
) -> dict[str, T]:
    """Build an object from each table of a section, by name; raise InvalidSettings with all problems of the section."""
    problems: list[str] = []
    tables, found = document.get(section, {}), {}
    if not isinstance(tables, Mapping):
        problems.append(f"{section}: Input should be a table of tables")
        tables = {}
    for name, given in tables.items():
        if not names.fullmatch(name):
            problems.append(f"{section}.{name}: The name does not match {names.pattern}")
        try:
            found[name] = model.model_validate(given, context={"name": name} | dict(context or {}))
        except ValidationError as error:
            problems += list_validation_problems(error, f"{section}.{name}")
    raise_if_problems(section, problems)
    return {name: build(name, table) for name, table in found.items()}


def raise_if_problems(section: str, problems: Sequence[str]) -> None:
    """Raise InvalidSettings with the problems of a section, if there are any."""
    if problems:
        raise InvalidSettings("\n  - ".join([f"Invalid section [{section}]:", *problems]))


def list_validation_problems(error: ValidationError, path: str) -> list[str]:
    """Return one line per problem, with its path below ``path``."""
    return [f"{path}{_format_path(one['loc'])}: {one['msg']}" for one in error.errors()]


def _format_path(parts: tuple[int | str, ...]) -> str:
    named = [part for part in parts if part != "[key]"]  # how pydantic marks the key of a mapping
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in named)
