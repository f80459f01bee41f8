"""Plain PyTorch, data-parallel, as in the example, that saves every second epoch."""

import os

import torch
from ledger import Ledger
from sklearn.datasets import load_digits
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 8
ledger = Ledger()
distributed.init_process_group("gloo")
rank, learners = distributed.get_rank(), distributed.get_world_size()

torch.manual_seed(1)
data = load_digits()
images, digits = torch.tensor(data.data / 16).float(), torch.tensor(data.target)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

begin, latest = 0, os.path.join(os.environ["CHECKPOINT_DIR"], "last.pt")
if os.path.exists(latest):
    saved = torch.load(latest)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begin = saved["epoch"]
together = DistributedDataParallel(model)
ledger.started(begin)

for epoch in range(begin + 1, EPOCHS + 1):
    losses = []
    for batch in torch.randperm(len(images))[rank::learners].split(64):
        optimizer.zero_grad()
        loss = functional.cross_entropy(together(images[batch]), digits[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    mean = sum(losses) / len(losses)
    accuracy = (model(images).argmax(1) == digits).float().mean().item()
    print(f"epoch {epoch} | loss {mean:.4f} | accuracy {accuracy:.3f}", flush=True)
    ledger.reported(epoch, epoch, loss=mean, accuracy=accuracy)
    if rank == 0 and epoch % 2 == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, os.path.join(os.path.dirname(latest), f"epoch-{epoch}.pt"))
        torch.save(state, latest)
    distributed.barrier()
    ledger.wait_for_halt(epoch)
distributed.destroy_process_group()
