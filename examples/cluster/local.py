"""Ask a Dask cluster of this machine which rank makes the others wait: `python local.py PROFILE...`.

On SLURM, the cluster is one of dask-jobqueue, and nothing else differs (docs/howto/cluster.md).
"""

import sys

from distributed import LocalCluster

import stepscope

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory="dask") as cluster:
        profile = stepscope.open(sys.argv[1:], cluster=cluster.scheduler_address)
        print(profile.stragglers().summary["statement"])
