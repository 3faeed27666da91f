#!/usr/bin/python3
"""Write gpt_bf16.txt: what PyTorch computes for two small GPTs in bfloat16 on the CPU, by autocast:
products in bfloat16, parameters, their gradients and the optimizer in float32.

usage: apt-get install python3-torch && tests/golden/make_gpt_bf16.py > tests/golden/gpt_bf16.txt

Cases and lines as in make_gpt.py, of which x, labels, the parameters, loss, the gradients of the first
R rows, and the losses of ten steps with SGD (lr 0.1, momentum 0.9, weight decay 1e-3) are here.
"""
import sys

import golden
import make_gpt
import torch


class Narrow(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(x).float()


def main():
    golden.begin("make_gpt_bf16.py")
    for c in make_gpt.CASES[:2]:
        print("gpt", c["name"], *(w for k, v in c.items() if k != "name" for w in (k, v)))
        model = make_gpt.Gpt(c)
        narrow = Narrow(model)
        x = torch.randint(0, c["vocabulary"], (golden.STEPS * c["rows"], c["sequence"]))
        labels = torch.randint(0, c["vocabulary"], (x.numel(),))
        labels[3::29] = -1
        batches = list(zip(x.chunk(golden.STEPS), labels.chunk(golden.STEPS)))
        golden.put("x", x)
        golden.put("labels", labels)
        for key, value in model.named_parameters():
            golden.put(key, value)
        loss = make_gpt.loss_of(narrow(batches[0][0]), batches[0][1])
        loss.backward()
        golden.put("loss", loss)
        for key, value in model.named_parameters():
            golden.put("grad." + key, value.grad)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        losses, _ = golden.train(narrow, sgd, batches, c["clip"], make_gpt.loss_of)
        golden.put("losses.sgd", losses)
    return 0


if __name__ == "__main__":
    sys.exit(main())
