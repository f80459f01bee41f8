"""Plain PyTorch, data-parallel: each learner trains on its part of the digits, and gradients are averaged."""

import os

import torch
from sklearn.datasets import load_digits
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")  # finds the others by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE
rank, learners = distributed.get_rank(), distributed.get_world_size()

torch.manual_seed(1)
data = load_digits()
images, digits = torch.tensor(data.data / 16).float(), torch.tensor(data.target)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

begin, latest = 0, os.path.join(os.environ.get("CHECKPOINT_DIR", "."), "last.pt")
if os.path.exists(latest):
    saved = torch.load(latest)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begin = saved["epoch"]
together = DistributedDataParallel(model)

for epoch in range(begin + 1, begin + 11):
    losses = []
    for batch in torch.randperm(len(images))[rank::learners].split(64):
        optimizer.zero_grad()
        loss = functional.cross_entropy(together(images[batch]), digits[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    accuracy = (model(images).argmax(1) == digits).float().mean()
    print(f"epoch {epoch} | loss {sum(losses) / len(losses):.4f} | accuracy {accuracy:.3f}", flush=True)
    if rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, os.path.join(os.path.dirname(latest), f"epoch-{epoch}.pt"))
        torch.save(state, latest)
distributed.destroy_process_group()
