#!/usr/bin/env python3
"""Training steps of PyTorch on a GPU, for bench/gpu/measure: one JSON object for each case.

    bench/gpu/torch_peers.py [gpt2 | resnet50 | small-cnn-32 | small-cnn-4096]... [--mode compile|eager] [--steps 20]

bf16 autocast over float32 weights, fused Adam, channels last, one fixed batch on the device. `bytes` is what the
device has in use beside what it had before (context included), read from the driver when the steps are done.
"""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, vocabulary=50304, tokens=1024, width=768, layers=12, heads=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, t):
        x = self.wte(t) + self.wpe.weight[: t.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.wte.weight)


class SmallCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_1, self.conv_2 = nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3)
        self.dense_1, self.dense_2 = nn.Linear(14 * 14 * 64, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv_1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv_2(x)), 2)
        return self.dense_2(F.relu(self.dense_1(x.flatten(1))))


def resnet50():
    import torchvision
    return torchvision.models.resnet50(num_classes=1000)


# name: model, samples a step, samples at a time, shape of a sample, classes
CASES = {
    "gpt2": (Gpt2, 64, 16, (1024,), 50304),
    "resnet50": (resnet50, 512, 512, (3, 224, 224), 1000),
    "small-cnn-32": (SmallCnn, 32, 32, (3, 64, 64), 10),
    "small-cnn-4096": (SmallCnn, 4096, 4096, (3, 64, 64), 10),
}


def in_use():
    free, total = torch.cuda.mem_get_info()
    return total - free


def run(name, mode, steps):
    make, batch, part, shape, classes = CASES[name]
    torch.manual_seed(0)
    tokens = len(shape) == 1
    net = make().cuda()
    if tokens:
        x, y = (torch.randint(classes, (batch, *shape), device="cuda") for _ in range(2))
    else:
        net = net.to(memory_format=torch.channels_last)
        x = torch.randn(batch, *shape, device="cuda").to(memory_format=torch.channels_last)
        y = torch.randint(classes, (batch,), device="cuda")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)

    def loss_of(x, y):
        with torch.autocast("cuda", torch.bfloat16):
            return F.cross_entropy(net(x).flatten(0, -2), y.flatten())

    if mode == "compile":
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        for xs, ys in zip(x.split(part), y.split(part)):
            loss = loss_of(xs, ys) * (part / batch)
            loss.backward()
        optimizer.step()

    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    times.sort()
    print(json.dumps({"framework": "torch " + torch.__version__, "case": name, "mode": mode, "batch": batch,
                      "at_a_time": part, "ms_median": times[len(times) // 2], "ms_min": times[0],
                      "bytes": in_use(), "first_step_s": first}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--mode", default="compile", choices=["compile", "eager"])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    for name in options.cases:
        run(name, options.mode, options.steps)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
