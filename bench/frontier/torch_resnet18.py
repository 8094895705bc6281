"""resnet18 at 64x64 in PyTorch: memory against time, with full-batch statistics.

  python torch_resnet18.py plain|blocks|stages [BATCH [STEPS]]

plain keeps all activations; blocks recomputes each residual block in the backward pass
(torch.utils.checkpoint), stages each group of two. Channels last, fused Adam, two threads. Prints
the median step and the peak of resident memory, of the whole process and since the import.
"""
import resource
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import torchvision
from torch.utils.checkpoint import checkpoint

mode = sys.argv[1]
batch, steps = (int(a) for a in (sys.argv[2:] + ["32", "12"][len(sys.argv) - 2:]))
torch.set_num_threads(2)
torch.manual_seed(0)


def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith(key))


imported = status("VmRSS")
net = torchvision.models.resnet18(num_classes=1000).to(memory_format=torch.channels_last)
x = torch.randn(batch, 3, 64, 64).to(memory_format=torch.channels_last)
y = torch.randint(0, 1000, (batch,))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
stages = [net.layer1, net.layer2, net.layer3, net.layer4]
parts = {"plain": [], "stages": stages, "blocks": [b for s in stages for b in s]}[mode]


def forward(x):
    x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
    if not parts:
        for stage in stages:
            x = stage(x)
    for part in parts:
        x = checkpoint(part, x, use_reentrant=False)
    return net.fc(torch.flatten(net.avgpool(x), 1))


times = []
for _ in range(steps):
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss = F.cross_entropy(forward(x), y)
    loss.backward()
    optimizer.step()
    loss.item()
    times.append(1e3 * (time.perf_counter() - start))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print("%s, batch %d: %.1f ms, %.0f MiB, %.0f added" % (
    mode, batch, statistics.median(times[2:]), peak, peak - imported))
