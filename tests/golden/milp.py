#!/usr/bin/env python3
"""Optimal recomputation for small graphs: the oracle behind milp.json. Needs numpy and scipy.

Checkmate's mixed-integer programme. Node i writes value i. The order is fixed: stage t runs some of
the nodes before t again, in their order, and then node t for the first time. Liveness is that of
plan/problem.h: a copy lives from its write to its last read before the next write, both steps
included; a value nobody reads lives at its own step; kept values live to the end; a workspace lives
during its node. Nothing is done in place. The cost is the sum of the times of all runs, the budget
bounds the live bytes of every step.

  R[t, i]  node i runs in stage t (i <= t; R[t, t] = 1)
  S[t, i]  value i is held from stage t - 1 into stage t (i < t)
  F[t, i, k]  in stage t, value i is free behind the run of node k (k = i, or k reads i)

Usage: milp.py [CPU_SECONDS] > milp.json. Cases that are not proved within 60 s are left out and
counted, and so are those that no schedule fits.
"""

import json
import sys
import time

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

LIMIT_S = 60
GAP = 1e-3  # of the proof
SHARES = (0.1, 0.25, 0.4, 0.6, 0.8)  # of the way from the largest node to the peak without recomputing


def random_graph(rng, nodes):
    """A training-like step: forward with branches and skips, then its mirror."""
    reads, ms, size = [], [], []
    forward = nodes // 2
    for n in range(forward):
        inputs = []
        if n > 0:
            inputs.append(n - 1 if rng.random() < 0.8 else int(rng.integers(0, n)))
            if n > 1 and rng.random() < 0.35:
                inputs.append(int(rng.integers(0, n)))
        reads.append(sorted(set(inputs)))
        ms.append(float(rng.choice([0.1, 0.3, 1, 2, 5])) * float(rng.uniform(0.8, 1.25)))
        size.append(int(rng.choice([1, 2, 4, 8])) * int(rng.integers(3, 9)))
    for n in range(forward, nodes):
        mirror = nodes - 1 - n
        inputs = [n - 1]
        if mirror < forward:
            inputs += [mirror] if rng.random() < 0.7 else reads[mirror][:1]
            if rng.random() < 0.3:
                inputs.append(int(rng.integers(0, n)))
        reads.append(sorted(set(inputs)))
        ms.append(float(rng.choice([0.1, 0.3, 1, 2, 5])) * float(rng.uniform(0.8, 1.25)))
        size.append(int(rng.choice([1, 2, 4])) * int(rng.integers(3, 9)))
    return {
        "bytes": [64 * s for s in size],
        "ms": [round(m, 3) for m in ms],
        "reads": reads,
        "workspace": [64 * int(rng.integers(1, 20)) if rng.random() < 0.15 else 0 for _ in range(nodes)],
        "once": [n for n in range(nodes) if rng.random() < 0.06],
        "keep": sorted({nodes - 1} | {n for n in range(nodes) if rng.random() < 0.04}),
    }


def peaks(graph):
    """The largest node alone, and the peak without recomputing."""
    n = len(graph["bytes"])
    last = list(range(n))
    for k, inputs in enumerate(graph["reads"]):
        for i in inputs:
            last[i] = max(last[i], k)
    for i in graph["keep"]:
        last[i] = n - 1
    size = graph["bytes"]
    alone = max(size[k] + graph["workspace"][k] + sum(size[i] for i in graph["reads"][k]) for k in range(n))
    most = max(graph["workspace"][k] + sum(size[i] for i in range(k + 1) if last[i] >= k) for k in range(n))
    return alone, most


class Programme:
    def __init__(self):
        self.cost, self.whole, self.rows, self.columns, self.factors, self.upper = [], [], [], [], [], []

    def variable(self, cost=0.0, whole=1):
        self.cost.append(cost)
        self.whole.append(whole)
        return len(self.cost) - 1

    def at_most(self, terms, bound):
        """sum of factor * variable <= bound; a variable of None is the constant 1."""
        for factor, variable in terms:
            if variable is None:
                bound -= factor
            else:
                self.rows.append(len(self.upper))
                self.columns.append(variable)
                self.factors.append(factor)
        self.upper.append(bound)

    def solve(self):
        matrix = csr_matrix((self.factors, (self.rows, self.columns)), shape=(len(self.upper), len(self.cost)))
        return milp(
            np.array(self.cost),
            integrality=np.array(self.whole),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, -np.inf, np.array(self.upper)),
            options={"time_limit": LIMIT_S, "mip_rel_gap": GAP},
        )


def solve(graph, budget):
    """("optimal", ms), ("infeasible", None) or ("unproved", None)."""
    size, ms, reads, workspace = (graph[key] for key in ("bytes", "ms", "reads", "workspace"))
    n = len(size)
    unit = 64.0
    p = Programme()
    run, hold, zero = {}, {}, object()
    for t in range(n):
        for i in range(t):
            run[t, i] = zero if i in graph["once"] else p.variable(ms[i])
            hold[t, i] = p.variable()
        run[t, t] = None
    for i in range(n):
        hold[n, i] = None if i in graph["keep"] else zero

    def terms(*pairs):
        return [(factor, variable) for factor, variable in pairs if variable is not zero]

    users = [[k for k in range(n) if i in reads[k]] for i in range(n)]
    for t in range(n):
        for k in range(t + 1):
            if run[t, k] is zero:
                continue
            for i in reads[k]:
                p.at_most(terms((1, run[t, k]), (-1, run[t, i]), (-1, hold[t, i])), 0)
        for i in range(t + 1):
            if hold[t + 1, i] is not zero:
                before = [(-1, hold[t, i])] if i < t else []
                p.at_most(terms((1, hold[t + 1, i]), (-1, run[t, i]), *before), 0)
        live = [(size[i] / unit, hold[t, i]) for i in range(t)]
        for k in range(t + 1):
            if run[t, k] is zero:
                continue
            live = live + terms((size[k] / unit, run[t, k]))
            p.at_most(live + terms((workspace[k] / unit, run[t, k])), budget / unit)
            for i in [*reads[k], k]:
                free = p.variable(0.0, 0)
                p.at_most(terms((1, free), (-1, run[t, k])), 0)
                p.at_most(terms((1, free), (1, hold[t + 1, i])), 1)
                for j in users[i]:
                    if k < j <= t:
                        p.at_most(terms((1, free), (1, run[t, j])), 1)
                live = live + [(-size[i] / unit, free)]
    answer = p.solve()
    if answer.status == 2:
        return "infeasible", None
    if answer.status != 0 or answer.x is None:
        return "unproved", None
    return "optimal", float(answer.fun) + sum(ms)


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 900
    graphs, counts = [], {"optimal": 0, "infeasible": 0, "unproved": 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        graph = random_graph(rng, int(rng.integers(10, 26)))
        alone, most = peaks(graph)
        graph["cases"] = []
        for share in SHARES:
            if time.process_time() > seconds:
                break
            budget = int(alone + share * (most - alone)) // 64 * 64
            state, best = solve(graph, budget)
            counts[state] += 1
            print(seed, len(graph["ms"]), share, state, round(time.process_time(), 1), file=sys.stderr, flush=True)
            if state == "optimal":
                graph["cases"].append([budget, round(best, 6)])
        if graph["cases"]:
            graphs.append(graph)
    lines = ",\n".join(json.dumps(graph, separators=(",", ":")) for graph in graphs)
    print('{"counts":' + json.dumps(counts, separators=(",", ":")) + ',\n"graphs":[\n' + lines + "\n]}")


if __name__ == "__main__":
    main()
