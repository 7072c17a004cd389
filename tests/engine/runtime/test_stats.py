from __future__ import annotations

from engine.runtime.stats import StatsMeter


def test_figures_come_from_the_clock() -> None:
    now = 100.0
    meter = StatsMeter(lambda: now)
    now = 101.0
    meter.prefill_starts(prompt_tokens=30, reused_tokens=10)
    now = 103.0
    meter.prefilled(16)
    halfway = meter.snapshot()
    assert (halfway.prefilled_tokens, halfway.prefill_s, halfway.prefill_tps) == (16, 2.0, 8.0)
    assert (halfway.first_token_s, halfway.decode_tps) == (0.0, 0.0)
    now = 105.0
    meter.prefilled(4)
    now = 106.0
    meter.token()
    assert meter.snapshot().decode_tps == 0.0
    now = 108.0
    meter.token()
    now = 110.0
    meter.token()
    now = 500.0
    stats = meter.snapshot()
    assert (stats.prompt_tokens, stats.reused_tokens, stats.prefilled_tokens) == (30, 10, 20)
    assert (stats.prefill_s, stats.prefill_tps) == (4.0, 5.0)
    assert stats.first_token_s == 6.0
    # Two tokens after the first, in four seconds.
    assert (stats.completion_tokens, stats.decode_tps) == (3, 0.5)


def test_nothing_measured_is_zero_and_not_an_error() -> None:
    stats = StatsMeter(lambda: 1.0).snapshot()
    assert (stats.prefill_tps, stats.decode_tps, stats.first_token_s) == (0.0, 0.0, 0.0)
