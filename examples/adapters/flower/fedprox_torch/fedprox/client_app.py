"""fedprox: a Flower ClientApp whose loss has FedProx's proximal term, of the mu that the strategy sends."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprox.model import Classifier, load_partition

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    x, y, _, _ = load_partition(**context.node_config)
    config = msg.content["config"]
    model = Classifier()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict(), strict=True)
    global_params = [param.detach().clone() for param in model.parameters()]

    mu, lr = config["proximal-mu"], config["lr"]
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for batch in torch.arange(len(y)).split(context.run_config["batch-size"]):
        optimizer.zero_grad()
        proximal = sum((local - received).norm(2) ** 2 for local, received in zip(model.parameters(), global_params))
        loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch]) + mu / 2 * proximal
        loss.backward()
        optimizer.step()

    reply = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord({"train_loss": loss.item(), "num-examples": len(y)}),
        }
    )
    return Message(reply, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    _, _, x, y = load_partition(**context.node_config)
    model = Classifier()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict(), strict=True)
    model.eval()
    with torch.no_grad():
        logits = model(x)
    found = MetricRecord(
        {
            "eval_loss": torch.nn.functional.cross_entropy(logits, y).item(),
            "accuracy": (logits.argmax(1) == y).float().mean().item(),
            "num-examples": len(y),
        }
    )
    return Message(RecordDict({"metrics": found}), reply_to=msg)
