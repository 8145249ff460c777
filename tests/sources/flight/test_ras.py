"""What `ncclras` prints, in the form of NCCL's user guide: the ranks that do not answer."""

from __future__ import annotations

import pytest

from stepscope import api
from stepscope.simulate.hang.faults import parse
from stepscope.simulate.hang.job import HangJob
from stepscope.simulate.hang.run import simulate_hang
from stepscope.sources.flight.ras import facts_of

#: A job of 8 ranks on two nodes, of which rank 5 left its communicator; names and addresses are made up.
TEXT = """NCCL version 2.24.3 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          4            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         4         {size}        {size}   RUNNING  INCOMPLETE

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  The missing ranks: 5
"""


def test_the_ranks_that_do_not_answer():
    facts = facts_of("ras.txt", TEXT.format(size=8), 8)
    assert [(fact.kind, fact.ranks) for fact in facts] == [("silent", (5,))]
    assert facts[0].text.startswith("ncclras: #0-0 (27a079b828ff1a75)")


def test_ranks_of_a_smaller_communicator_are_not_those_of_the_job():
    assert [fact.ranks for fact in facts_of("ras.txt", TEXT.format(size=4), 8)] == [()]


@pytest.mark.parametrize("text", ["", "NCCL version\nCommunicators\n", "#0-0 (ab) X\nThe missing ranks: x, -"])
def test_text_without_ranks_says_nothing(text):
    assert not [fact for fact in facts_of("ras.txt", text, 8) if fact.ranks]


def test_it_names_the_dead_end_of_a_link(tmp_path):
    """Dumps alone name all members of the call."""
    done = simulate_hang(HangJob(tp=2, pp=1, dp=4, seed=12), parse("link:rank=5"))
    done.write(tmp_path)
    assert len(api.hang(tmp_path).summary["culprits"]) > 1
    (tmp_path / "ncclras.txt").write_text(TEXT.format(size=8))
    said = api.hang(tmp_path).summary
    assert (said["verdict"], said["culprits"]) == ("link-dead", [5])
