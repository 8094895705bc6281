"""What bench/convolutions times, with PyTorch: its kernels on channels-last float32 tensors.

    python bench/convolutions_torch.py [resnet18|mobilenet-v2] [batch] [threads] [runs] [--cpu]

Takes the list of layers from convolutions.cc. The least of the runs; one JSON object a line.
"""

import json
import pathlib
import re
import sys
import time

import torch

LINE = re.compile(r'\{"(.+?)", (\d+), (\d+), (\d+), (\d+), (\d+), (\d+)(?:, (\d+))?(?:, (true))?\}')


def layers(which):
    text = pathlib.Path(__file__).with_name("convolutions.cc").read_text()
    block = text[text.index("kResnet18[]" if which == "resnet18" else "kMobilenet[]"):]
    for name, *numbers, groups, first in LINE.findall(block[:block.index("};")]):
        yield name, [int(n) for n in numbers], int(groups or 1), bool(first)


def main():
    flags = [a for a in sys.argv[1:] if a.startswith("--")]
    words = [a for a in sys.argv[1:] if not a.startswith("--")] + [None] * 4
    which, batch, threads, runs = words[0] or "resnet18", *(
        int(w or d) for w, d in zip(words[1:4], (32, 2, 20)))
    torch.set_num_threads(threads)
    clock = (lambda: time.process_time() / threads) if "--cpu" in flags else time.perf_counter

    def least(call):
        call()
        best = 1e9
        for _ in range(runs):
            start = clock()
            call()
            best = min(best, clock() - start)
        return 1e3 * best

    total = 0
    for name, (count, size, channels, kernel, filters, stride), groups, first in layers(which):
        last = torch.channels_last
        x = torch.randn(batch, channels, size, size).to(memory_format=last)
        w = torch.randn(filters, channels // groups, kernel, kernel).to(memory_format=last)
        settings = ([stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], groups)
        y = torch.ops.aten.convolution(x, w, None, *settings)
        dy = torch.randn_like(y)

        def backward(mask):
            return torch.ops.aten.convolution_backward(dy, x, w, None, *settings, mask)

        calls = {"forward": lambda: torch.ops.aten.convolution(x, w, None, *settings),
                 "input": lambda: backward([True, False, False]),
                 "weight": lambda: backward([False, True, False])}
        for direction, call in calls.items():
            if first and direction == "input":
                continue
            ms = least(call)
            total += count * ms
            print(json.dumps({"layer": name, "direction": direction, "count": count, "ms": round(ms, 4)}),
                  flush=True)
    print(json.dumps({"layer": "step", "ms": round(total, 2)}))


if __name__ == "__main__":
    main()
