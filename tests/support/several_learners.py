"""An experiment of Determined whose code starts a process for each slot, and trains in all of them until it is halted.

Once it goes on, it ends after three more batches. The metric is 18 times the batch, as the ranks 0 to 3 add up to 6.
"""

from __future__ import annotations

EXPERIMENT = """\
name: several
entrypoint: python3 train.py
hyperparameters: {step: 3}
searcher: {name: single, metric: x}
resources: {slots_per_trial: 4}
max_restarts: 0
"""
TRAIN = """\
import subprocess, sys, threading
import determined as det

info = det.get_cluster_info()
slots, learners, learner = len(info.slot_ids), len(info.container_addrs), info.container_rank
if len(sys.argv) == 1:
    command = [sys.executable, "-m", "determined.launch.wrap_rank"]
    ranks = [(learner * slots + local, local) for local in range(slots)]
    rest = [sys.executable, __file__]
    running = [subprocess.Popen([*command, str(rank), "--", *rest, str(rank), str(local)]) for rank, local in ranks]
    sys.exit(max(each.wait() for each in running))
rank, local = map(int, sys.argv[1:])
distributed = det.core.DistributedContext(
    rank=rank, size=slots * learners, local_rank=local, local_size=slots, cross_rank=learner,
    cross_size=learners, chief_ip=info.container_addrs[0],
)
with det.core.init(distributed=distributed) as core:
    x, batch, end = 0, 0, 1000000
    if info.latest_checkpoint:
        with core.checkpoint.restore_path(info.latest_checkpoint) as path:
            x, batch = map(int, path.joinpath("state").read_text().split())
        end = batch + 3
        print("goes on with", batch == core.checkpoint.get_metadata(info.latest_checkpoint)["steps_completed"])
    while batch < end:
        if rank == 0:
            threading.Event().wait(0.02)  # the others wait for it: nobody takes a core until somebody halts them
        x += sum(distributed.allgather(rank)) * info.trial.hparams["step"]
        batch += 1
        assert distributed.allgather_local(batch) == [batch] * slots
        if rank == 0:
            core.train.report_validation_metrics(batch, {"x": x})
            with core.checkpoint.store_path({"steps_completed": batch}) as (path, _):
                path.joinpath("state").write_text("%d %d" % (x, batch))
        if core.preempt.should_preempt():
            break
    print("ends", slots, learners, flush=True)
"""
