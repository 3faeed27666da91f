#!/usr/bin/python3
"""Write gpt.txt: what PyTorch computes for a few small GPTs, in float32 on the CPU.

usage: apt-get install python3-torch && tests/golden/make_gpt.py > tests/golden/gpt.txt

Lines of the file:
    gpt NAME vocabulary V context T sequence S layers L heads H width C inner I positions P norm N
        mlp M untied 0|1 unbiased 0|1 rows R clip X                                   (one line)
    NAME COUNT v0 v1 ...        a tensor, row-major
Tensors of a case, as in make_mlp.py: x [10 * R, S] (token numbers), labels [10 * R * S] (-1: does not
count), each parameter and, as "grad.<name>", its gradient for the first R rows; logits [R * S, V] and
loss [1] for them before any step; losses of ten steps on ten batches with SGD (lr 0.1, momentum 0.9,
weight decay 1e-3) and AdamW (lr 0.001, weight decay 0.01), each from the same start; norms [10] of
SGD's gradients before clipping (clip 0: none).
"""
import math
import sys

import golden
import torch
import torch.nn.functional as F

CASES = [
    dict(name="gpt2", vocabulary=13, context=8, sequence=8, layers=2, heads=2, width=8, inner=32,
         positions="learned", norm="layernorm", mlp="gelu", untied=0, unbiased=0, rows=3, clip=0.0),
    dict(name="llama", vocabulary=11, context=9, sequence=7, layers=2, heads=2, width=12, inner=20,
         positions="rotary", norm="rmsnorm", mlp="swiglu", untied=1, unbiased=1, rows=3, clip=0.2),
    dict(name="tied_rotary", vocabulary=11, context=70, sequence=67, layers=1, heads=2, width=8,
         inner=16, positions="rotary", norm="layernorm", mlp="swiglu", untied=0, unbiased=0, rows=1,
         clip=0.0),
]


def rotate(x, places):
    """x [B, H, T, D]: the pairs (i, i + D/2) turn by place * 10000^(-2i/D)."""
    half = x.shape[-1] // 2
    angles = places[:, None].double() * 10000.0 ** (-torch.arange(half).double() / half)
    cos, sin = angles.cos().float(), angles.sin().float()
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class RmsNorm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def norm_of(c):
    return RmsNorm(c["width"]) if c["norm"] == "rmsnorm" else torch.nn.LayerNorm(c["width"])


class Attention(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.c_attn = torch.nn.Linear(c["width"], 3 * c["width"], bias=not c["unbiased"])
        self.c_proj = torch.nn.Linear(c["width"], c["width"], bias=not c["unbiased"])

    def forward(self, x):
        rows, length, width = x.shape
        heads = self.c["heads"]
        q, k, v = (p.view(rows, length, heads, width // heads).transpose(1, 2)
                   for p in self.c_attn(x).split(width, dim=2))
        if self.c["positions"] == "rotary":
            q, k = rotate(q, torch.arange(length)), rotate(k, torch.arange(length))
        score = q @ k.transpose(2, 3) / math.sqrt(width // heads)
        unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = score.masked_fill(unseen, -math.inf).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(rows, length, width))


class Mlp(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_fc = torch.nn.Linear(c["width"], c["inner"], bias=not c["unbiased"])
        if c["mlp"] == "swiglu":
            self.c_gate = torch.nn.Linear(c["width"], c["inner"], bias=not c["unbiased"])
        self.c_proj = torch.nn.Linear(c["inner"], c["width"], bias=not c["unbiased"])

    def forward(self, x):
        if hasattr(self, "c_gate"):
            return self.c_proj(F.silu(self.c_gate(x)) * self.c_fc(x))
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.attn = norm_of(c), Attention(c)
        self.ln_2, self.mlp = norm_of(c), Mlp(c)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = torch.nn.Embedding(c["vocabulary"], c["width"])
        if c["positions"] == "learned":
            self.wpe = torch.nn.Embedding(c["context"], c["width"])
        self.h = torch.nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.ln_f = norm_of(c)
        if c["untied"]:
            self.lm_head = torch.nn.Linear(c["width"], c["vocabulary"], bias=False)
        for name, p in self.named_parameters():  # far from linear, norms and biases off their start
            torch.nn.init.normal_(p, 1.0 if "ln_" in name and "weight" in name else 0.0, 0.3)

    def forward(self, ids):
        x = self.wte(ids)
        if hasattr(self, "wpe"):
            x = x + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        return self.lm_head(x) if hasattr(self, "lm_head") else x @ self.wte.weight.T


def loss_of(logits, labels):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels, ignore_index=-1)


def main():
    golden.begin("make_gpt.py")
    for c in CASES:
        print("gpt", c["name"], *(w for k, v in c.items() if k != "name" for w in (k, v)))
        model = Gpt(c)
        x = torch.randint(0, c["vocabulary"], (golden.STEPS * c["rows"], c["sequence"]))
        labels = torch.randint(0, c["vocabulary"], (x.numel(),))
        labels[3::29] = -1
        golden.put_case(model, x, labels, c["clip"], 0.001, loss_of)
    return 0


if __name__ == "__main__":
    sys.exit(main())
