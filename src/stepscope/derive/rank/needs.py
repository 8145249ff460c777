"""What a question requires of a profile: refused in one line where it is missing, with what to capture instead."""

from __future__ import annotations

from stepscope.derive.rank.data import COMM, COMPUTE, ranks_of
from stepscope.errors import CannotAnswer
from stepscope.model.capturing import capture_with
from stepscope.model.note import Note, noted
from stepscope.model.profile import Profile
from stepscope.model.ranks import some_ranks


def need_ops(profile: Profile) -> None:
    """Refuse questions about the GPU on a profile without GPU activity."""
    if not profile.has("ops") or profile.ops.height == 0:
        raise no_gpu_activity()


def no_gpu_activity() -> CannotAnswer:
    """The refusal of questions about the GPU; for those that read a profile by parts and find no op in any."""
    return CannotAnswer(
        "the profile has no GPU activity",
        capture_with(),
    )


def need_calls(profile: Profile, untold: str, instead: str = "") -> None:
    """Refuse questions about the host without CUDA calls: nothing says `untold` (`what an op waited for`)."""
    if not profile.has("calls"):
        raise _no_calls("CUDA API calls", untold, instead)


def need_launches(profile: Profile, untold: str, instead: str = "") -> None:
    """Refuse questions about launches where no op has a launch call."""
    need_ops(profile)
    if not profile.has("calls") or profile.ops["launch"].null_count() == profile.ops.height:
        raise _no_calls("launch calls of its GPU work", untold, instead)


def _no_calls(what: str, untold: str, instead: str) -> CannotAnswer:
    return CannotAnswer(f"the profile has no {what}, so nothing shows {untold}", f"{capture_with()}{instead}")


def need_communication(profile: Profile) -> None:
    """Refuse questions about communication on a profile that has none."""
    need_ops(profile)
    if not (profile.ops["role"] == "comm").any():
        raise no_communication()


def no_communication() -> CannotAnswer:
    """The refusal of questions about communication."""
    return CannotAnswer(
        "the profile has no communication: no NCCL, NVSHMEM or peer-copy op on any rank",
        "profile a step of a multi-GPU run; `stepscope breakdown` answers for one GPU",
    )


def bare_notes(profile: Profile) -> list[Note]:
    """A note on ranks that communicate and never compute: nothing can hide their communication."""
    bare = [d.rank for d in ranks_of(profile) if (d.role == COMM).any() and not (d.role == COMPUTE).any()]
    if not bare:
        return []
    return [noted("no-compute", some=some_ranks(bare))]
