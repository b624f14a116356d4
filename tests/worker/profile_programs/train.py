"""A plain training script that knows nothing of profiling: train.py STEPS."""

import sys
import time

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(net.parameters())
for _step in range(int(sys.argv[1])):
    begin = time.perf_counter()
    x = torch.randn(64, 64)
    loss = torch.nn.functional.mse_loss(net(x), x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.004)
    print(f"took {(time.perf_counter() - begin) * 1e3:.4f} ms, {64 / 0.004:.0f} rows/s", flush=True)
