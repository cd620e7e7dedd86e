"""Groups of ranks: simulated in one process, or real ones.

`dsa_cp.comm.distributed` and `dsa_cp.comm.process` are imported where they are used, since they load torch.distributed.
"""

from dsa_cp.comm.simulated import SimulatedComm, SimulatedGroup, run_ranks

__all__ = ["SimulatedComm", "SimulatedGroup", "run_ranks"]
