"""Looking for keys that repeat, while the file is read: that is the only place where rows come in order."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec

from tidemill.domain.importing import ImportPlan, ImportRequest, make_plan
from tidemill.domain.importing.check import reader_of
from tidemill.domain.ports import Source
from tidemill.domain.resource import Resource
from tidemill.domain.values.field import Normalizer
from tidemill.domain.values.same import same_texts
from tidemill.handlers.importing.keys import Keys


class KeyIntake:
    """Decodes no more of each input than the fields of its keys."""

    def __init__(self, params: dict[str, Any], plan: ImportPlan, normalizers: Mapping[str, Normalizer]) -> None:
        self.params = params
        self.held = plan.duplicates == "last" and bool(plan.watched) and plan.watched[0] == plan.resource.key
        self._watched = plan.watched
        self._resource = plan.resource
        names = sorted({name for fields in self._watched for name in fields})
        columns = {name: column for column, name in plan.mapping.items()}
        self._fields = {name: plan.resource.field(name) for name in names}
        self._readers = {name: reader_of(plan, name, normalizers) for name in self._fields}
        self._get = {name: attrgetter(f"f{at}") for at, name in enumerate(names)}
        rename = {f"f{at}": columns[name] for at, name in enumerate(names)}
        defaults = map(plan.stands_in, self._fields.values())
        fields = [(attribute, Any, default) for attribute, default in zip(rename, defaults, strict=True)]
        self._row = msgspec.defstruct("Row", fields, rename=rename, gc=False)
        self._decode_all = msgspec.json.Decoder(list[self._row], float_hook=Decimal).decode  # type: ignore[name-defined]
        self._decode = msgspec.json.Decoder(self._row, float_hook=Decimal).decode
        key = plan.resource.key
        self._keys = [Keys(latest=plan.duplicates == "last" and fields == key) for fields in self._watched]

    def see(self, lo: int, inputs: Sequence[bytes]) -> list[tuple[int, int, int]]:
        if not self._watched:
            return []
        rows = self._rows(inputs)
        columns = {
            name: same_texts(self._fields[name], reader.keys(list(map(self._get[name], rows))))
            for name, reader in self._readers.items()
        }
        found = []
        for place, fields in enumerate(self._watched):
            values: Sequence[Any] = columns[fields[0]]
            if len(fields) > 1 or fields in self._resource.nulls_equal:
                tuples = zip(*(columns[name] for name in fields), strict=True)
                values = [value if None not in value or self._tells(fields, value) else None for value in tuples]
            found += [(seq, other, place) for seq, other in self._keys[place].see(lo, values)]
        return found

    def _tells(self, fields: tuple[str, ...], values: tuple[Any, ...]) -> bool:
        return self._resource.tells(fields, [name for name, value in zip(fields, values, strict=True) if value is None])

    def close(self) -> None:
        for keys in self._keys:
            keys.close()

    def _rows(self, inputs: Sequence[bytes]) -> list[Any]:
        try:
            return self._decode_all(b"[%s]" % b",".join(inputs))
        except msgspec.MsgspecError:
            return [self._one(text) for text in inputs]

    def _one(self, text: bytes) -> Any:
        """A record that is no object has no key."""
        try:
            return self._decode(text)
        except msgspec.MsgspecError:
            return self._row()


def make_intake(params: dict[str, Any], source: Source, normalizers: Mapping[str, Normalizer]) -> KeyIntake:
    """A plan that could not be made before the source was open is made here."""
    if "plan" not in params:
        request = msgspec.convert(params["request"], ImportRequest)
        resource = msgspec.convert(params["resource"], Resource)
        columns = source.columns or resource.names
        plan = make_plan(request, resource, columns, named_by_rows=source.columns is None)
        params = params | {"plan": msgspec.to_builtins(plan), "layout": dict(source.layout)}
    return KeyIntake(params, msgspec.convert(params["plan"], ImportPlan), normalizers)
