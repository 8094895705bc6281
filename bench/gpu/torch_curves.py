#!/usr/bin/env python3
"""The peer of bench/gpu/measure's loss curves: data, and 200 steps of PyTorch from our initial weights.

    bench/gpu/torch_curves.py data gpt2|resnet50 FILE.npz
    bench/gpu/torch_curves.py shake FROM.safetensors SEED TO.safetensors    every weight by a millionth
    bench/gpu/torch_curves.py train gpt2|resnet50 FILE.npz BATCH STEPS WEIGHTS.safetensors...    prints {"losses": [...]} for each

Models are those of src/model/gpt.cc and resnet.cc with Keras's Adam (epsilon outside the bias correction), bf16
autocast over float32 weights.
"""
import json
import sys

import numpy as np


def make_data(model, path):
    random = np.random.default_rng(7)
    # Frequencies as words have: the loss falls smoothly to their entropy, without a plateau that two runs would leave
    # at different steps. No sample comes twice, so that none is learned by heart.
    def draw(kinds, shape):
        odds = 1 / np.arange(1, kinds + 1)
        return random.choice(kinds, size=shape, p=odds / odds.sum()).astype(np.int32)
    if model == "gpt2":
        tokens = draw(50304, (3200, 1025))
        np.savez(path, x=tokens[:, :-1].copy(), y=tokens[:, 1:].copy())
    else:
        np.savez(path, x=random.integers(256, size=(3200, 224, 224, 3), dtype=np.uint8), y=draw(1000, 3200))


def shake(source, seed, target):
    from safetensors.numpy import load_file, save_file
    random = np.random.default_rng(seed)
    save_file({name: np.asarray(value * (1 + 1e-6 * random.standard_normal(value.shape)), value.dtype)
               for name, value in load_file(source).items()}, target)


def train(model, data, weights, batch, steps):
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file
    w = {name: value.cuda().requires_grad_("moving" not in name) for name, value in load_file(weights).items()}
    arrays = np.load(data)
    x = torch.from_numpy(arrays["x"]).cuda()
    y = torch.from_numpy(arrays["y"]).long().cuda()

    def dense(x, name):
        return F.linear(x, w[name + "/kernel"].t(), w[name + "/bias"])

    def gpt2(tokens):
        h = F.embedding(tokens, w["wte/embeddings"]) + w["wpe/embeddings"]

        def norm(x, name):
            return F.layer_norm(x, (768,), w[name + "/gamma"], w[name + "/beta"], 1e-5)
        for i in range(12):
            b = f"block_{i}"
            q, k, v = dense(norm(h, b + "/ln_1"), b + "/attn/qkv").view(*h.shape[:2], 3, 12, 64).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(h.shape)
            h = h + dense(mixed, b + "/attn/proj")
            h = h + dense(F.gelu(dense(norm(h, b + "/ln_2"), b + "/mlp/fc"), approximate="tanh"), b + "/mlp/proj")
        return F.linear(norm(h, "ln_f"), w["wte/embeddings"]).flatten(0, 1)

    def conv_bn(x, name, stride=1, padding=0):
        kernel = w[name + "_conv/kernel"].permute(3, 2, 0, 1)  # from (H, W, in, out)
        x = F.conv2d(x, kernel, w[name + "_conv/bias"], stride, padding)
        return F.batch_norm(x, None, None, w[name + "_bn/gamma"], w[name + "_bn/beta"], True, 0, 1.001e-5)

    def resnet50(images):
        x = images.permute(0, 3, 1, 2).float() / 255  # channels last as they lie
        x = F.max_pool2d(F.relu(conv_bn(x, "conv1", 2, 3)), 3, 2, 1)
        for stack, blocks in zip(range(2, 6), (3, 4, 6, 3)):
            for block in range(1, blocks + 1):
                name, stride = f"conv{stack}_block{block}", 2 if stack > 2 and block == 1 else 1
                side = conv_bn(x, name + "_0", stride) if block == 1 else x
                z = F.relu(conv_bn(x, name + "_1", stride))
                z = F.relu(conv_bn(z, name + "_2", 1, 1))
                x = F.relu(side + conv_bn(z, name + "_3"))
        return dense(x.mean((2, 3)), "predictions")

    forward = gpt2 if model == "gpt2" else resnet50
    parameters = [value for value in w.values() if value.requires_grad]
    m, v = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    losses = []
    for step in range(steps):
        begin = step * batch % len(x)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(forward(x[begin:begin + batch]).float(), y[begin:begin + batch].flatten())
        gradients = torch.autograd.grad(loss, parameters)
        t = step + 1
        alpha = 3e-4 * (1 - 0.999**t)**0.5 / (1 - 0.9**t)
        with torch.no_grad():
            torch._foreach_lerp_(m, gradients, 0.1)
            torch._foreach_mul_(v, 0.999)
            torch._foreach_addcmul_(v, gradients, gradients, 0.001)
            roots = torch._foreach_sqrt(v)
            torch._foreach_add_(roots, 1e-7)
            torch._foreach_addcdiv_(parameters, m, roots, -alpha)
        losses.append(loss.detach())
    print(json.dumps({"losses": [float(loss) for loss in losses]}))


def main():
    verb, *rest = sys.argv[1:]
    if verb == "data":
        return make_data(*rest)
    if verb == "shake":
        return shake(rest[0], int(rest[1]), rest[2])
    model, data, batch, steps, *all_weights = rest
    for weights in all_weights:
        train(model, data, weights, int(batch), int(steps))


if __name__ == "__main__":
    main()
