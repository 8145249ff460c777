"""Between which steps a run that drifts is judged."""

from __future__ import annotations

import numpy as np

from stepscope.derive.run.job import run_of
from stepscope.model.profile import Profile


def first_and_last(profile: Profile) -> tuple[str, str]:
    """The first and the last usual step of a run that has kinds of steps, spikes left out."""
    run = run_of(profile)
    assert run is not None and run.kinds is not None, "only asked of steps"
    usual = run.kinds.kinds[0].steps
    calm = np.sort(usual[~run.kinds.spike[usual]])
    return run.label[int(calm[0])], run.label[int(calm[-1])]
