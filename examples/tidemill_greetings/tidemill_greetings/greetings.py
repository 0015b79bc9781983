"""Greet people in the languages that ``tidemill.toml`` declares."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill import Fail, Item
from tidemill.config_sections import ConfigTable, parse_section
from tidemill.core.errors import UnknownEntity
from tidemill.core.job import Job
from tidemill.core.kinds import Handler
from tidemill.jobs.submission import Submission, encode_inputs, submit_and_get_job
from tidemill.runtime import Runtime

GREET_KIND = "greetings.greet"
DEFAULT_TEXTS = {"english": "Hello, {name}!"}


class GreetingTable(ConfigTable):
    """A table ``[greetings.LANGUAGE]``."""

    text: str


def load_texts(runtime: Runtime) -> Mapping[str, str]:
    """Return the text of each language; raise InvalidSettings with every mistake in the section."""

    def parse(document: Mapping[str, Any]) -> dict[str, str]:
        return parse_section(document, "greetings", GreetingTable, lambda _, table: table.text)

    return DEFAULT_TEXTS | runtime.load_section(parse)


def greet(runtime: Runtime, name: str, language: str) -> str:
    """Return a greeting; raise UnknownEntity if the language is not declared."""
    texts = runtime.get(load_texts)
    if language not in texts:
        raise UnknownEntity(f'Unknown language "{language}". Declared languages: {", ".join(sorted(texts))}.')
    return texts[language].format(name=name)


def make_greet_handler(runtime: Runtime) -> Handler:
    """Return the handler of the kind, which greets the person of an item."""

    async def greet_item(item: Item) -> dict[str, str]:
        try:
            return {"greeting": greet(runtime, item.input["name"], item.input.get("language", "english"))}
        except UnknownEntity as error:
            raise Fail(str(error)) from error  # a retry would not help

    return Handler(GREET_KIND, greet_item, "async")


async def submit_greetings(runtime: Runtime, names: Sequence[str], language: str) -> Job:
    """Submit a job with one item for each name; return the job."""
    inputs = [{"name": name, "language": language} for name in names]

    def encode_rows() -> Any:
        return encode_inputs(inputs, runtime.settings.max_row_bytes)

    return (await submit_and_get_job(runtime.db, Submission(GREET_KIND), encode_rows))[0]
