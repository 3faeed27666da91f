#!/usr/bin/python3
"""Write hub_*.safetensors and hub.txt: small GPT-2s as Hugging Face's `transformers` keeps them.

usage: apt-get install python3-torch && cd tests/golden && ./make_hub.py > hub.txt

A file holds random weights under the names and in the layout of GPT2LMHeadModel: linear weights of
the blocks are [in, out] (its Conv1D). The three differ as real files do:
    hub_f32    as save_pretrained writes them: "transformer." in front, the tied head beside it
    hub_bf16   as published: no prefix, the causal masks beside the weights
    hub_f16    as hub_bf16; its head is not tied: an lm_head.weight of its own, behind the prefix
hub.txt says of each, in one line, NAME vocabulary V context T layers L heads H width C untied 0|1,
and then `ids COUNT ...` and `logits COUNT ...`: what the formulas of modeling_gpt2.py (Conv1D,
attention, gelu_new) give for the weights as they are stored, in float32 on the CPU.
"""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

CASES = [("hub_f32", torch.float32, 0), ("hub_bf16", torch.bfloat16, 0), ("hub_f16", torch.float16, 1)]
V, T, L, H, C = 17, 12, 2, 2, 8
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint8: "U8"}


def weights(untied):
    """The names of GPT2Model, in its order, with their shapes."""
    yield "wte.weight", (V, C)
    yield "wpe.weight", (T, C)
    for i in range(L):
        yield f"h.{i}.ln_1.weight", (C,)
        yield f"h.{i}.ln_1.bias", (C,)
        yield f"h.{i}.attn.c_attn.weight", (C, 3 * C)
        yield f"h.{i}.attn.c_attn.bias", (3 * C,)
        yield f"h.{i}.attn.c_proj.weight", (C, C)
        yield f"h.{i}.attn.c_proj.bias", (C,)
        yield f"h.{i}.ln_2.weight", (C,)
        yield f"h.{i}.ln_2.bias", (C,)
        yield f"h.{i}.mlp.c_fc.weight", (C, 4 * C)
        yield f"h.{i}.mlp.c_fc.bias", (4 * C,)
        yield f"h.{i}.mlp.c_proj.weight", (4 * C, C)
        yield f"h.{i}.mlp.c_proj.bias", (C,)
    yield "ln_f.weight", (C,)
    yield "ln_f.bias", (C,)
    if untied:
        yield "lm_head.weight", (V, C)


def conv1d(w, name, x):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def norm(w, name, x):
    return F.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"], 1e-5)


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3.0))))


def attention(q, k, v):
    q, k, v = (x.view(T, H, C // H).transpose(0, 1) for x in (q, k, v))
    score = q @ k.transpose(1, 2) / math.sqrt(C // H)
    score = score.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
    return (score.softmax(-1) @ v).transpose(0, 1).reshape(T, C)


def logits_of(w, ids):
    x = w["wte.weight"][ids] + w["wpe.weight"]
    for i in range(L):
        q, k, v = conv1d(w, f"h.{i}.attn.c_attn", norm(w, f"h.{i}.ln_1", x)).split(C, dim=1)
        x = x + conv1d(w, f"h.{i}.attn.c_proj", attention(q, k, v))
        x = x + conv1d(w, f"h.{i}.mlp.c_proj", gelu_new(conv1d(w, f"h.{i}.mlp.c_fc", norm(w, f"h.{i}.ln_2", x))))
    return norm(w, "ln_f", x) @ w.get("lm_head.weight", w["wte.weight"]).T


def save(path, tensors):
    """The safetensors format: a size, a JSON table, the data."""
    table, data = {"__metadata__": {"format": "pt"}}, b""
    for name, t in tensors.items():
        raw = t.contiguous().view(torch.int16 if t.element_size() == 2 else torch.uint8).numpy().tobytes()
        table[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape),
                       "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(table, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)


def file_of(name, stored, untied):
    """The file's tensors, with what real files hold besides."""
    prefix = "transformer." if name == "hub_f32" or untied else ""
    file = {("" if key == "lm_head.weight" else prefix) + key: t for key, t in stored.items()}
    if name == "hub_f32":
        file["lm_head.weight"] = stored["wte.weight"]
    for i in range(L if name != "hub_f32" else 0):
        file[f"{prefix}h.{i}.attn.bias"] = torch.ones(T, T, dtype=torch.uint8).tril().view(1, 1, T, T)
        file[f"{prefix}h.{i}.attn.masked_bias"] = torch.tensor(-1e4).to(stored["wte.weight"].dtype)
    return file


def put(name, tensor):
    values = tensor.reshape(-1).tolist()
    print(name, len(values), *("%.9g" % v for v in values))


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    print("# by make_hub.py with torch", torch.__version__)
    for name, dtype, untied in CASES:
        stored = {}
        for key, shape in weights(untied):
            start = 1.0 if "ln_" in key and "weight" in key else 0.0
            stored[key] = (start + 0.3 * torch.randn(shape)).to(dtype)
        save(name + ".safetensors", file_of(name, stored, untied))
        ids = torch.randint(0, V, (T,))
        print(name, "vocabulary", V, "context", T, "layers", L, "heads", H, "width", C, "untied", untied)
        put("ids", ids)
        put("logits", logits_of({key: t.float() for key, t in stored.items()}, ids))
    return 0


if __name__ == "__main__":
    sys.exit(main())
