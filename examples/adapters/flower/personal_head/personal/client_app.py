"""personal: the body travels, the head and the number of rounds seen are kept in `context.state`."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from personal.task import Personal, load_data

app = ClientApp()


def received(msg: Message, context: Context) -> Personal:
    """The shared body with this client's own head."""
    torch.manual_seed(0)
    model = Personal()
    model.body.load_state_dict(msg.content["body"].to_torch_state_dict())
    if "head" in context.state.array_records:
        model.head.load_state_dict(context.state["head"].to_torch_state_dict())
    return model


@app.train()
def train(msg: Message, context: Context) -> Message:
    model = received(msg, context)
    history = context.state.metric_records.get("history", MetricRecord({"rounds": 0, "losses": []}))
    config = context.run_config
    lr = config["learning-rate"] * config["decay"] ** history["rounds"]
    (x, y), _ = load_data(context)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for batch in torch.arange(len(y)).split(32):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
    context.state["head"] = ArrayRecord(model.head.state_dict())
    context.state["history"] = MetricRecord(
        {"rounds": history["rounds"] + 1, "losses": [*history["losses"], loss.item()]}
    )
    metrics = MetricRecord({"lr": lr, "rounds_seen": history["rounds"] + 1, "num-examples": len(y)})
    return Message(RecordDict({"body": ArrayRecord(model.body.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    model = received(msg, context)
    _, (x, y) = load_data(context)
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean().item()
    return Message(RecordDict({"metrics": MetricRecord({"accuracy": accuracy, "num-examples": len(y)})}), reply_to=msg)
