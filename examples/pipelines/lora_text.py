"""Fine-tuning a Hugging Face model by LoRA, with other hospitals: adapters alone travel, and alone are masked.

The base model is made of a configuration and a seed, so that nothing is downloaded; yours is
`AutoModelForSequenceClassification.from_pretrained(folder)`, from a folder that every site has. It never leaves.
"""

import torch
from peft import LoraConfig, TaskType, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from transformers import BertConfig, BertForSequenceClassification

WORDS, LENGTH = 40, 12


def network():
    """A small BERT whose base is frozen, with adapters in its attention and a head that is trained."""
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=LENGTH, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    base = BertForSequenceClassification(config)
    adapters = LoraConfig(task_type=TaskType.SEQ_CLS, r=4, lora_alpha=16, target_modules=["query", "value"])
    return get_peft_model(base, adapters)


def share(part, count=240):
    """This site's reports, made up: which of two words stands more often."""
    made = torch.Generator().manual_seed(100 + part)
    tokens = torch.randint(4, WORDS, (count, LENGTH), generator=made)
    labels = torch.randint(0, 2, (count,), generator=made)
    places = torch.rand((count, LENGTH), generator=made) < 0.4
    return torch.where(places, (2 + labels)[:, None], tokens), labels


def take_part(site, part, _parts):
    """Answer tasks until the site is closed."""
    tokens, labels = share(part)
    held = len(labels) // 5
    model = network()
    for task in site.tasks():
        if task.kind == "initialize":
            task.push(get_peft_model_state_dict(network()), examples=0)  # of nothing that was learnt here
            continue
        set_peft_model_state_dict(model, task.model(like=get_peft_model_state_dict(model)))
        if task.kind == "train":
            train(model, tokens[held:], labels[held:], task)
            task.push(get_peft_model_state_dict(model), examples=len(labels) - held)
        else:
            model.eval()
            with torch.no_grad():
                right = (model(input_ids=tokens[:held]).logits.argmax(1) == labels[:held]).float().mean()
            task.report(examples=held, metrics={"accuracy": right})


def train(model, tokens, labels, task):
    """Some passes over this site's reports."""
    model.train()
    optimizer = torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), lr=5e-3)
    order = torch.Generator().manual_seed(task.seed % 2**63)
    for _ in range(task.config["train"].get("epochs", 1)):
        for batch in torch.randperm(len(labels), generator=order).split(32):
            optimizer.zero_grad()
            model(input_ids=tokens[batch], labels=labels[batch]).loss.backward()
            optimizer.step()
