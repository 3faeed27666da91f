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


def put_case(model, x, labels, clip, adamw_lr, loss_of):
    """x and labels are those of all steps; samples of a step have equally many labels each."""
    put("x", x)
    put("labels", labels)
    batches = list(zip(x.chunk(STEPS), labels.chunk(STEPS)))
    for key, value in model.named_parameters():
        put(key, value)
    logits = model(batches[0][0])
    loss = loss_of(logits, batches[0][1])
    loss.backward()
    put("logits", logits)
    put("loss", loss)
    for key, value in model.named_parameters():
        put("grad." + key, value.grad)
    sgd_model, adamw_model = copy.deepcopy(model), copy.deepcopy(model)
    sgd = torch.optim.SGD(sgd_model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    adamw = torch.optim.AdamW(adamw_model.parameters(), lr=adamw_lr, weight_decay=0.01)
    losses, norms = train(sgd_model, sgd, batches, clip, loss_of)
    put("losses.sgd", losses)
    put("norms.sgd", norms)
    put("losses.adamw", train(adamw_model, adamw, batches, clip, loss_of)[0])
