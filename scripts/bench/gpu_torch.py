"""What scripts/bench/gpu measures beside: PyTorch on the same GPU.

usage: gpu_torch.py limits                               copy TB/s and bf16 TFLOP/s of this GPU
       gpu_torch.py speed ATTENTION ROWS SEQUENCE STEPS  GPT-2 124M: compiled, bf16, fused AdamW; ATTENTION is flash or cudnn
       gpu_torch.py curve PRECISION TEXT WEIGHTS LOSSES ROWS SEQUENCE
           the losses of tests/bench/curve.c, from the same weights on the same bytes
"""
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F

WARMUP = 100  # of curve
VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH = 50257, 1024, 12, 12, 768


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.attn = torch.nn.ModuleDict({"c_attn": torch.nn.Linear(WIDTH, 3 * WIDTH),
                                         "c_proj": torch.nn.Linear(WIDTH, WIDTH)})
        self.mlp = torch.nn.ModuleDict({"c_fc": torch.nn.Linear(WIDTH, 4 * WIDTH),
                                        "c_proj": torch.nn.Linear(4 * WIDTH, WIDTH)})

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = (p.view(rows, length, HEADS, -1).transpose(1, 2)
                   for p in self.attn["c_attn"](self.ln_1(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, vocabulary=VOCABULARY):
        super().__init__()
        self.wte = torch.nn.Embedding(vocabulary, WIDTH)
        self.wpe = torch.nn.Embedding(CONTEXT, WIDTH)
        self.h = torch.nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = torch.nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, 0, 0.02)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels.view(-1))


def timed(work, repeats):
    """The median of `repeats` runs, in seconds, after three."""
    times = []
    for i in range(repeats + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        if i >= 3:
            times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def limits():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = timed(lambda: a @ b, 20)
    x = torch.randn(1 << 30, device="cuda")
    y = torch.empty_like(x)
    copy = timed(lambda: y.copy_(x), 10)
    print("limits copy %.3f TB/s bf16 %.1f TFLOP/s" % (2 * x.numel() * 4 / copy / 1e12,
                                                      2 * 8192 ** 3 / product / 1e12))


def optimizer_of(model, **more):
    return torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8,
                             weight_decay=0.1, **more)


def speed(attention, rows, sequence, steps):
    torch.set_float32_matmul_precision("high")
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        getattr(torch.backends.cuda, "enable_%s_sdp" % name)(name == attention)
    torch.manual_seed(1)
    model = Gpt(50304).cuda()  # padded, as those who want speed do
    optimizer = optimizer_of(model, fused=True)
    compiled = torch.compile(model)
    ids, labels = (torch.randint(0, VOCABULARY, (rows, sequence), device="cuda") for _ in range(2))

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    seconds = timed(step, steps)
    print("torch %s, %s: %.3f ms a step, %.0f tokens/s (first step %.0f s)"
          % (torch.__version__, attention, seconds * 1e3, rows * sequence / seconds, first))


def load(model, path):
    data, at = memoryview(pathlib.Path(path).read_bytes()), 0
    parameters = dict(model.named_parameters())
    while at < len(data):
        end = bytes(data[at:at + 256]).index(b"\n") + at
        name, count = bytes(data[at:end]).decode().split()
        values = torch.frombuffer(bytearray(data[end + 1:end + 1 + 4 * int(count)]),
                                  dtype=torch.float32)
        with torch.no_grad():
            parameters.pop(name).copy_(values.view_as(dict(model.named_parameters())[name]))
        at = end + 1 + 4 * int(count)
    assert not parameters, "not in the file: %s" % list(parameters)


def curve(precision, text, weights, losses, rows, sequence):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Gpt().to(device)
    load(model, weights)
    optimizer = optimizer_of(model)
    tokens = torch.frombuffer(bytearray(pathlib.Path(text).read_bytes()),
                              dtype=torch.uint8).long().to(device)
    mine = [line.split() for line in pathlib.Path(losses).read_text().splitlines()]
    count, worst, worst_norm = rows * sequence, (0.0, -1), (0.0, -1)
    for step, (_, loss_text, norm_text) in enumerate(mine):
        at = (torch.arange(count + 1, device=device) + step * count) % len(tokens)
        ids, labels = tokens[at[:-1]].view(rows, -1), tokens[at[1:]].view(rows, -1)
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(ids, labels)
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = 3e-4 * min(step + 1, WARMUP) / WARMUP
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        worst = max(worst, (abs(loss.item() - float(loss_text)), step))
        worst_norm = max(worst_norm, (abs(norm / float(norm_text) - 1), step))
        if step in (0, len(mine) - 1):
            print("step %d: torch %.5f ctrun %s" % (step, loss.item(), loss_text))
    print("curve %s: %d steps, losses at most %.5f apart (step %d), norms %.2g (step %d)"
          % (precision, len(mine), *worst, *worst_norm))
    return 0 if worst[0] <= 0.02 else 1


def main():
    words = sys.argv[2:]
    if sys.argv[1] == "limits":
        return limits()
    if sys.argv[1] == "speed":
        return speed(words[0], *(int(word) for word in words[1:]))
    return curve(*words[:4], *(int(word) for word in words[4:]))


if __name__ == "__main__":
    sys.exit(main())
