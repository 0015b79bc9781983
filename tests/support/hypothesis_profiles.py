"""The hypothesis profiles of all tests."""

import os

from hypothesis import HealthCheck, Phase, settings

DEFAULT_PROFILE, FUZZ_PROFILE = "patient", "fuzz"
FUZZ_FACTOR = int(os.environ.get("FUZZ_FACTOR", "1"))  # `scripts/fuzz` sets it: more examples, with random seeds
FUZZ_ENDS_AT = float(os.environ.get("FUZZ_ENDS_AT", "inf"))  # of the monotonic clock: then no more examples run


def register_profiles() -> None:
    """Register the profiles. Examples have no deadline: on a busy machine, every example is slow."""
    settings.register_profile(
        DEFAULT_PROFILE, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
    )
    settings.register_profile(
        FUZZ_PROFILE,
        deadline=None,
        derandomize=FUZZ_FACTOR == 1,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=FUZZ_FACTOR > 1,
    )
    settings.load_profile(DEFAULT_PROFILE)
