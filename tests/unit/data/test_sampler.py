"""Windows: every one once an epoch, a pure function of seed and position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core.errors import DataError
from isthmus.data.sampler import SamplerState, WindowSampler


def test_targets_are_tokens_one_ahead():
    sampler = WindowSampler(np.arange(100), batch_size=3, length=8, seed=1)
    batch = sampler.next_batch()
    assert batch["tokens"].shape == batch["targets"].shape == (3, 8)
    assert batch["tokens"].dtype == np.int64
    np.testing.assert_array_equal(batch["targets"], batch["tokens"] + 1)


@given(
    size=st.integers(9, 200),
    length=st.integers(1, 8),
    batch=st.integers(1, 7),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_an_epoch_visits_every_window_once(size, length, batch, seed):
    sampler = WindowSampler(np.arange(size), batch_size=batch, length=length, seed=seed)
    starts = sampler.windows(0)
    seen: list[int] = []
    while sampler.state.epoch == 0:
        seen += sampler.next_batch()["tokens"][:, 0].tolist()
    assert sorted(seen[: len(starts)]) == sorted(starts.tolist())
    assert len(set(starts.tolist())) == len(starts)
    gaps = np.diff(np.sort(starts))
    assert (gaps == length).all()


@given(stop=st.integers(0, 30))
@settings(max_examples=20, deadline=None)
def test_position_is_the_whole_state(stop):
    whole = WindowSampler(np.arange(64), batch_size=5, length=6, seed=7)
    batches = [whole.next_batch() for _ in range(40)]
    first = WindowSampler(np.arange(64), batch_size=5, length=6, seed=7)
    for _ in range(stop):
        first.next_batch()
    second = WindowSampler(np.arange(64), batch_size=5, length=6, seed=7)
    second.state = SamplerState(first.state.epoch, first.state.index)
    for expected in batches[stop:]:
        np.testing.assert_array_equal(second.next_batch()["tokens"], expected["tokens"])


def test_epochs_and_seeds_differ():
    sampler = WindowSampler(np.arange(1000), batch_size=4, length=10, seed=3)
    other = WindowSampler(np.arange(1000), batch_size=4, length=10, seed=4)
    first, second = sampler.windows(0).copy(), sampler.windows(1).copy()
    assert first.tolist() != second.tolist()
    assert first.tolist() != other.windows(0).tolist()


def test_one_window_exactly():
    sampler = WindowSampler(np.arange(9), batch_size=2, length=8)
    np.testing.assert_array_equal(sampler.next_batch()["tokens"], [np.arange(8)] * 2)


def test_too_short_names_both_lengths():
    with pytest.raises(DataError, match="has 8 tokens; one sequence needs 9"):
        WindowSampler(np.arange(8), batch_size=1, length=8)


def test_without_shuffling_windows_come_in_order():
    sampler = WindowSampler(np.arange(40), batch_size=2, length=8, shuffle=False)
    assert sampler.windows(0).tolist() == [0, 8, 16, 24]
