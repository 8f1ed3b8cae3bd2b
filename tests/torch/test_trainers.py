"""Loops of other people's: Trainer, Lightning, and two processes of DDP and FSDP2, with `fit` and `offloaded`."""

import copy

import pytest
import torch
from torch import distributed, nn
from torch.multiprocessing import spawn

from forebay import Budget
from forebay.torch import fit, offloaded, plan_of, states_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
STATES = Budget(device="120kB", host="1GB")
TIGHT = Budget(device="45kB", host="1GB")


def adamw(model):
    return torch.optim.AdamW(model.parameters(), 0.01)


def same(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(*(getattr(value, "full_tensor", lambda value=value: value)() for value in p)) for p in pairs)


def test_a_trainer_of_transformers_goes_on_from_its_checkpoints(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=64, num_key_value_heads=2, use_cache=False, **sizes)
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(64, (40, 12))]
    plain, resumed = copy.deepcopy(model), copy.deepcopy(model)

    def train(model, name, own, resume=None):
        how = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 8, "save_steps": 4}
        how |= {"max_grad_norm": 1.0, "report_to": [], "use_cpu": True, "disable_tqdm": True}
        arguments = transformers.TrainingArguments(str(tmp_path / name), **how)
        optimizer = adamw(model)
        if own:
            fit(model, Budget(device="70kB", host="1GB"))
            offloaded(optimizer, STATES)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        trainer = transformers.Trainer(model, arguments, train_dataset=rows, optimizers=(optimizer, schedule))
        trainer.train(resume_from_checkpoint=resume)
        return optimizer

    optimizer = train(model, "ours", True)
    train(plain, "plain", False)
    train(resumed, "resumed", True, str(tmp_path / "plain" / "checkpoint-4"))
    assert same(model, plain) and same(resumed, plain)
    assert set(plan_of(model).names) != {"keep"} and states_of(optimizer).metrics.moved["up 1"]
    saved = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "ours" / "checkpoint-8")
    assert same(saved, plain)


def test_lightning_trains_a_module_whose_network_is_fitted(tmp_path):
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self, net, own):
            super().__init__()
            self.net, self.own = net, own

        def training_step(self, batch):
            return self.net(batch).square().mean()

        def configure_optimizers(self):
            optimizer = adamw(self.net)
            return offloaded(optimizer, Budget(device="20kB", host="1GB")) if self.own else optimizer

    torch.manual_seed(0)
    net = transformer()
    plain, batches = copy.deepcopy(net), torch.randn(40, 6, 8)
    fit(net, TIGHT)
    for each in (net, plain):
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(
            accelerator="cpu", max_steps=8, gradient_clip_val=0.5, default_root_dir=tmp_path, **quiet
        )
        torch.manual_seed(1)
        trainer.fit(Module(each, each is net), torch.utils.data.DataLoader(batches, batch_size=4))
    assert same(net, plain) and set(plan_of(net).names) != {"keep"}
    stored = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=True)
    assert all(torch.equal(stored["state_dict"][f"net.{name}"], value) for name, value in net.state_dict().items())


def transformer():
    layers = (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.1) for _ in range(4))
    return nn.Sequential(nn.Linear(8, 16), *layers, nn.Linear(16, 4))


def one_of_two(rank, way, file):
    """Train beside another process, with `fit` and without."""
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    try:
        for choice in (None, "recompute", "offload"):
            train_alike(rank, way, choice)
    finally:
        distributed.destroy_process_group()


def train_alike(rank, way, choice):
    torch.manual_seed(0)
    model = transformer()
    plain = copy.deepcopy(model)
    steps = []
    for each in (model, plain):
        wrapped = each
        if way == "FSDP2":
            from torch.distributed.fsdp import fully_shard

            for layer in list(each)[1:5]:
                fully_shard(layer)
            fully_shard(each)
        if each is model:
            fit(each, TIGHT, choice=choice)
        if way == "DDP":
            wrapped = nn.parallel.DistributedDataParallel(each)
        optimizer = adamw(each)
        if each is model and way == "DDP":
            offloaded(optimizer, Budget(device="20kB", host="1GB"))
        steps.append((wrapped, optimizer))
    for number in range(6):
        for wrapped, optimizer in steps:
            torch.manual_seed(10 * number + rank)
            optimizer.zero_grad()
            wrapped(torch.randn(4, 6, 8)).square().mean().backward()
            optimizer.step()
    assert same(model, plain)
    assert set(plan_of(model).names) != {"keep"}


@pytest.mark.parametrize("way", ["DDP", "FSDP2"])
def test_two_processes_train_alike(way, tmp_path):
    spawn(one_of_two, (way, tmp_path / "rendezvous"), nprocs=2)
