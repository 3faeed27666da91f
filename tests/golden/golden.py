"""What the scripts of this folder share: a tensor as a line, and what a case holds."""
import copy

import torch

STEPS = 10


def begin(script):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    print("# by", script, "with torch", torch.__version__)


def put(name, tensor):
    values = tensor.detach().reshape(-1).tolist()
    print(name, len(values), *("%.9g" % v for v in values))


def train(model, optimizer, batches, clip, loss_of):
    losses, norms = [], []
    for x, labels in batches:
        optimizer.zero_grad()
        loss = loss_of(model(x), labels)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip if clip > 0 else 1e30).item())
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), torch.tensor(norms)


class Lion(torch.optim.Optimizer):
    """By the formulas of its paper (2302.06675, algorithm 2): PyTorch has none of its own."""

    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                direction = torch.sign(beta1 * m + (1 - beta1) * p.grad)
                p.copy_((1 - lr * decay) * p - lr * direction)
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


def put_case(model, x, labels, clip, adamw_lr, loss_of):
    """x and labels are those of all steps; samples of a step have equally many labels each.

    Besides what the scripts say: losses of ten steps with SGD (lr 0.05, Nesterov's momentum 0.8,
    weight decay 0.01) and with Lion (a quarter of AdamW's lr, betas 0.9 and 0.99, weight decay 0.1).
    """
    put("x", x)
    put("labels", labels)
    batches = list(zip(x.chunk(STEPS), labels.chunk(STEPS)))
    for key, value in model.named_parameters():
        put(key, value)
    model.eval()
    logits = model(batches[0][0])
    put("logits", logits)
    put("loss", loss_of(logits, batches[0][1]))
    model.train()
    first = copy.deepcopy(model)
    loss_of(first(batches[0][0]), batches[0][1]).backward()
    for key, value in first.named_parameters():
        put("grad." + key, value.grad)
    sgd_model, adamw_model = copy.deepcopy(model), copy.deepcopy(model)
    nesterov_model, lion_model = copy.deepcopy(model), copy.deepcopy(model)
    sgd = torch.optim.SGD(sgd_model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    adamw = torch.optim.AdamW(adamw_model.parameters(), lr=adamw_lr, weight_decay=0.01)
    losses, norms = train(sgd_model, sgd, batches, clip, loss_of)
    put("losses.sgd", losses)
    put("norms.sgd", norms)
    for key, value in sgd_model.named_buffers():
        if value.dim() > 0:  # not num_batches_tracked
            put(key, value)
    put("losses.adamw", train(adamw_model, adamw, batches, clip, loss_of)[0])
    nesterov = torch.optim.SGD(nesterov_model.parameters(), lr=0.05, momentum=0.8, nesterov=True,
                               weight_decay=1e-2)
    lion = Lion(lion_model.parameters(), lr=adamw_lr / 4, betas=(0.9, 0.99), weight_decay=0.1)
    put("losses.nesterov", train(nesterov_model, nesterov, batches, clip, loss_of)[0])
    put("losses.lion", train(lion_model, lion, batches, clip, loss_of)[0])
