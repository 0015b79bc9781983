"""The features of this process: built-in features and those of other installed distributions."""

import os
import re
from collections.abc import Collection
from importlib.metadata import entry_points

from tidemill.core.errors import InvalidSettings, format_suggestion
from tidemill.features import Feature, import_object

DISABLED_FEATURES_VARIABLE = "TIDEMILL_DISABLED_FEATURES"
FEATURE_ENTRY_POINT_GROUP = "tidemill.features"
BUILTIN_FEATURES = (
    "tidemill.imports.feature:FEATURE",
    "tidemill.exports.feature:FEATURE",
    "tidemill.distributions.feature:FEATURE",
    "tidemill.enrichment.feature:FEATURE",
    "tidemill.watches.feature:FEATURE",
)


def load_features(disabled: Collection[str] = ()) -> tuple[Feature, ...]:
    """Return all features that are not disabled; raise InvalidSettings if a disabled feature does not exist."""
    names = [*BUILTIN_FEATURES, *(point.value for point in entry_points(group=FEATURE_ENTRY_POINT_GROUP))]
    features: dict[str, Feature] = {}
    for name in names:
        feature = import_object(name)
        if not isinstance(feature, Feature):
            raise InvalidSettings(f'Entry point "{name}" in the group "{FEATURE_ENTRY_POINT_GROUP}" is not a Feature')
        if feature.name in features:
            raise InvalidSettings(f'Two installed features are named "{feature.name}". Uninstall one of them.')
        features[feature.name] = feature
    for name in disabled:
        if name not in features:
            raise InvalidSettings(
                f'{DISABLED_FEATURES_VARIABLE}: unknown feature "{name}"{format_suggestion(name, features)}'
            )
    return tuple(feature for feature in features.values() if feature.name not in disabled)


def find_features_by_name(names: Collection[str]) -> list[Feature]:
    """Return the installed features with these names."""
    return [feature for feature in load_features() if feature.name in names] if names else []


def load_enabled_features() -> tuple[Feature, ...]:
    """Return the features that the environment does not disable, without loading all settings, which takes 0.2 s."""
    return load_features(re.findall(r"[\w-]+", os.environ.get(DISABLED_FEATURES_VARIABLE, "")))
