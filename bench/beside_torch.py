#!/usr/bin/env python3
"""Ops and layers on values beside PyTorch's eager ones, in turn.

    bench/beside_torch.py PYTHON [--program build/bench/beside_torch] [--cases REGEX] [--threads 1,2]
                          [--rounds 20] [--seconds 0.2]

PYTHON: a Python with PyTorch. Each case runs forward and with its gradient, for every number of threads. Both
programs stay alive; a round gives each the same time, and a case's figure is the least of its rounds. PyTorch's
results and gradients are contiguous. The bar: 1.2 times PyTorch's time, and 10 us more where that is below 0.1 ms.
"""
import argparse
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FACTOR, SHORT_MS, EXTRA_MS = 1.2, 0.1, 0.01


def torch_cases():
    """Name: function, shapes of its tensors. Names and shapes as in beside_torch.cc."""
    import torch
    from torch.nn import functional as F

    chosen = torch.randint(512, (1024, 512))
    rnn = torch.nn.RNN(256, 256, batch_first=True)

    def group_norm(x, gamma, beta):
        return F.group_norm(x, 8, gamma, beta, 1e-3)

    def simple_rnn(x, *weights):
        return torch.rnn_tanh(x, torch.zeros(1, 64, 256), list(weights), True, 1, 0.0, False, False, True)[0]

    return {
        "transpose heads": (lambda x: x.permute(0, 2, 1, 3).contiguous(), [(16, 128, 12, 64)]),
        "transpose images": (lambda x: x.permute(0, 2, 3, 1).contiguous(), [(32, 64, 56, 56)]),
        "GroupNormalization": (group_norm, [(8, 64, 32, 32), (64,), (64,)]),
        "sum axes": (lambda x: x.sum((1, 2)), [(32, 64, 64, 64)]),
        "max axes": (lambda x: x.amax((1, 2)), [(32, 64, 64, 64)]),
        "max rows": (lambda x: x.amax(-1), [(4096, 768)]),
        "prod rows": (lambda x: x.prod(-1), [(4096, 64)]),
        "GlobalMaxPooling": (lambda x: x.amax((1, 2)), [(32, 32, 32, 128)]),
        "sort rows": (lambda x: x.sort(-1)[0], [(1024, 512)]),
        "sort one row": (lambda x: x.sort(-1)[0], [(100000,)]),
        "top_k": (lambda x: x.topk(100)[0], [(16, 65536)]),
        "take_along_axis": (lambda x: x.take_along_dim(chosen, -1), [(1024, 512)]),
        "SimpleRNN": (simple_rnn, [(64, 128, 256)] + [tuple(w.shape) for w in rnn.parameters()]),
    }


def worker(threads):
    """PyTorch's side of the same lines that beside_torch reads."""
    import torch

    torch.set_num_threads(threads)
    cases = torch_cases()
    call = None
    for line in sys.stdin:
        word, rest = line.strip().split(" ", 1)
        if word == "round":
            seconds, calls, spent, start = float(rest), 0, 0.0, time.perf_counter()
            while spent < seconds:
                call()
                calls += 1
                spent = time.perf_counter() - start
            print(1e3 * spent / calls, flush=True)
            continue
        call = None
        back = rest.endswith(" gradient")
        function, shapes = cases[rest.removesuffix(" gradient")]
        given = [(torch.rand(shape) * 2 - 1) * (0.05 if i else 1) for i, shape in enumerate(shapes)]
        for tensor in given:
            tensor.requires_grad_(back)
        if back:
            factors = torch.rand_like(function(*given))
            # A gradient may be a view of one number; ours are whole tensors.
            call = lambda: [each.contiguous() for each in torch.autograd.grad(function(*given), given, factors)]
        else:
            call = lambda: function(*given)
        call()
        print("ready", flush=True)


class Side:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit(f"{self.process.args[0]} ended at '{line}'")
        return answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "bench", "beside_torch"))
    parser.add_argument("--cases", default=".")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--list", action="store_true")
    a = parser.parse_args()
    if a.worker:
        return worker(a.worker)
    if a.list:
        return print("\n".join(torch_cases()))
    own = [a.python, os.path.abspath(__file__), a.python]
    listed = subprocess.run([*own, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
    names = [name + form for name in listed for form in ("", " gradient") if re.search(a.cases, name + form)]
    above = []
    print(f"{'case':28s} threads     ours   PyTorch  ratio")
    for threads in map(int, a.threads.split(",")):
        sides = [Side([a.program, str(threads)]), Side([*own, "--worker", str(threads)])]
        for name in names:
            for side in sides:
                side.ask("case " + name)
            rounds = [[float(side.ask(f"round {a.seconds}")) for side in sides] for _ in range(a.rounds)]
            ours, theirs = (min(column) for column in zip(*rounds))
            good = ours <= FACTOR * theirs + (EXTRA_MS if theirs < SHORT_MS else 0)
            if not good:
                above.append(f"{name} ({threads})")
            print(f"{name:28s} {threads:7d} {ours:8.3f}  {theirs:8.3f}  {ours / theirs:5.2f}{'' if good else '  above'}",
                  flush=True)
        for side in sides:
            side.process.stdin.close()
            side.process.wait()
    print("above the bar: " + (", ".join(above) or "none"))


if __name__ == "__main__":
    main()
