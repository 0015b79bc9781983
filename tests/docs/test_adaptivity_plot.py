"""The plot in the docs is what the controller does today."""

from xml.etree import ElementTree as ET

from adaptivity_plot import LATENCY_S, MINUTE, RATES, TARGET, plot, trace


def test_adaptivity_plot_matches_output_of_its_script() -> None:
    """Run benchmarks/adaptivity_plot.py after a change of a controller."""
    drawn = plot(trace())
    assert TARGET.read_text() == drawn
    assert ET.fromstring(drawn).tag.endswith("svg")


def test_adaptivity_plot_settles_within_20_s_with_few_throttled_requests() -> None:
    """Settled within 20 s of every change, and less than 1 request in 100 refused from then on."""
    seconds = trace()
    for number, rate in enumerate(RATES):
        settled = seconds[number * MINUTE + 20 : (number + 1) * MINUTE]
        assert all(abs(second.level / (rate * LATENCY_S) - 1) < 0.25 for second in settled)
        done, refused = sum(second.done for second in settled), sum(second.throttled for second in settled)
        assert refused < 0.01 * done
        assert done > 0.9 * rate * len(settled)
