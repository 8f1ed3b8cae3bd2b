"""Models of other people's libraries, tiny and from their configurations: bit-equal within a tight budget."""

import copy
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch
from tests.torch.models import deterministic as deterministic
from torch.nn import functional

from forebay import Budget
from forebay.torch import fit, plan_of, unfit

PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"
WORDS, ATTENTION = 64, {"num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 32, "intermediate_size": 64}
GROUPED = ATTENTION | {"num_key_value_heads": 2, "vocab_size": WORDS, "max_position_embeddings": 32, "use_cache": False}


def words(rows=2, length=12):
    return torch.randint(1, WORDS, (rows, length))


def language(name, **how):
    """Give a causal model of transformers, and its loss."""
    library = import_module("transformers")
    model = getattr(library, f"{name}ForCausalLM", None) or getattr(library, f"{name}LMHeadModel")
    config = getattr(library, f"{name}Config")(pad_token_id=0, bos_token_id=1, eos_token_id=2, **how)
    return model(config), {"input_ids": (ids := words()), "labels": ids}


def encoder(name, kind, inputs, **how):
    library = import_module("transformers")
    return getattr(library, f"{name}{kind}")(getattr(library, f"{name}Config")(**how)), inputs


IMAGES = {"num_channels": 3, "image_size": 32, "patch_size": 8}


def sequences(name):
    t5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 3, "num_heads": 4, "vocab_size": WORDS}
    bart = {"d_model": 32, "vocab_size": WORDS, "max_position_embeddings": 32}
    bart |= {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in SIDES.items()}
    how = t5 | {"decoder_start_token_id": 0} if name == "T5" else bart
    given = {"input_ids": words(), "labels": words(), "use_cache": False}
    return encoder(name, "ForConditionalGeneration", given, **how)


SIDES = {"layers": 3, "attention_heads": 4, "ffn_dim": 64}


def speech():
    sizes = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in SIDES.items()}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    how = {"d_model": 32, "vocab_size": WORDS, "num_mel_bins": 8, "max_source_positions": 16, "use_cache": False}
    given = {"input_features": torch.randn(2, 8, 32), "labels": words()}
    return encoder("Whisper", "ForConditionalGeneration", given, **(how | tokens | sizes))


def vision(name, **how):
    models = import_module("torchvision.models")
    return getattr(models, name)(num_classes=4, **how), (torch.randn(2, 3, 64, 64),)


def timm(name, size=64, **how):
    return import_module("timm").create_model(name, num_classes=4, **how), (torch.randn(2, 3, size, size),)


def diffusion():
    unet = import_module("diffusers").UNet2DModel
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    model = unet(16, 3, 3, block_out_channels=(8, 16), norm_num_groups=4, attention_head_dim=4, **blocks)
    return model, (torch.randn(2, 3, 16, 16), torch.tensor([3, 7]))


def transformer_of_diffusion():
    how = {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4, "num_layers": 3, "sample_size": 8}
    model = import_module("diffusers").DiTTransformer2DModel(**how, num_embeds_ada_norm=10, norm_num_groups=4)
    return model, (torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.tensor([1, 2]))


class Graphs(torch.nn.Module):
    """Residual convolutions on a graph, as PyTorch Geometric's deep networks have them."""

    def __init__(self):
        super().__init__()
        nn = import_module("torch_geometric.nn")
        layers = [(nn.GENConv(16, 16), torch.nn.LayerNorm(16), torch.nn.ReLU()) for _ in range(4)]
        self.layers = torch.nn.ModuleList(nn.DeepGCNLayer(*layer, block="res+", dropout=0.1) for layer in layers)

    def forward(self, x, edges):
        for layer in self.layers:
            x = layer(x, edges)
        return x


def graphs(kind):
    edges = torch.randint(20, (2, 60))
    if kind == "residual":
        return Graphs(), (torch.randn(20, 16), edges)
    model = getattr(import_module("torch_geometric.nn"), kind)(8, 16, 4, 4, norm="layer")
    return model, (torch.randn(20, 8), edges)


MODELS = {
    "transformers: Llama": lambda: language("Llama", **GROUPED),
    "transformers: Mistral": lambda: language("Mistral", **GROUPED),
    "transformers: Qwen2": lambda: language("Qwen2", **GROUPED),
    "transformers: Gemma2": lambda: language("Gemma2", head_dim=8, **GROUPED),
    "transformers: Mixtral": lambda: language("Mixtral", num_local_experts=4, **GROUPED),
    "transformers: GPT2": lambda: language("GPT2", n_embd=32, n_layer=3, n_head=4, vocab_size=WORDS, use_cache=False),
    "transformers: OPT": lambda: language(
        "OPT", ffn_dim=64, word_embed_proj_dim=32, vocab_size=WORDS, use_cache=False, **ATTENTION
    ),
    "transformers: BERT": lambda: encoder(
        "Bert", "ForMaskedLM", {"input_ids": words(), "labels": words()}, vocab_size=WORDS, **ATTENTION
    ),
    "transformers: T5": lambda: sequences("T5"),
    "transformers: BART": lambda: sequences("Bart"),
    "transformers: Whisper": speech,
    "transformers: ViT": lambda: encoder(
        "ViT",
        "ForImageClassification",
        {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])},
        **ATTENTION,
        **IMAGES,
    ),
    "diffusers: UNet2DModel": diffusion,
    "diffusers: DiT": transformer_of_diffusion,
    "torch_geometric: DeepGCN": lambda: graphs("residual"),
    "torch_geometric: GAT": lambda: graphs("GAT"),
    "torchvision: ResNet-18": lambda: vision("resnet18"),
    "torchvision: ConvNeXt": lambda: vision("convnext_tiny"),
    "torchvision: Swin": lambda: vision("swin_t"),
    "timm: ViT": lambda: timm("vit_tiny_patch16_224", img_size=64, depth=3),
    "timm: Mixer": lambda: timm("mixer_s32_224", img_size=64),
    "timm: RegNet": lambda: timm("regnetx_002"),
}
"""What makes each, and what it is called with."""


def iterate(model, given, seed):
    """Run one iteration and give loss, gradients and buffers."""
    torch.manual_seed(seed)
    model.zero_grad()
    output = model(**given) if isinstance(given, dict) else model(*given)
    loss = getattr(output, "loss", None)
    if loss is None:
        output = getattr(output, "sample", output)
        loss = functional.mse_loss(output, torch.ones_like(output))
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]


def test_the_page_has_a_row_for_each():
    tested = PAGE.read_text().partition("## What is tested")[2]
    rows = re.findall(r"^\| (\w+) \| (.+?) \|$", tested, re.MULTILINE)[1:]
    assert [f"{library}: {name}" for library, names in rows for name in names.split(", ")] == list(MODELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_a_tiny_model_of_a_zoo_is_bit_equal_within_a_tight_budget(name):
    pytest.importorskip(name.partition(":")[0])
    torch.use_deterministic_algorithms(False)  # some of these have none
    torch.manual_seed(0)
    model, given = MODELS[name]()
    model.train()
    plain = copy.deepcopy(model)
    fit(model, Budget(device="1GB", host="1GB"))
    for seed in range(2):
        iterate(model, given, seed)
        iterate(plain, given, seed)
    plan = plan_of(model)
    told = {choice: peak for choice, _, peak in plan.alternatives()}
    least = min(told.values())
    unfit(model)
    fit(model, Budget(device=least + (told["keep"] - least) // 3, host="1GB"))
    for seed in range(2, 8):
        ours, theirs = iterate(model, given, seed), iterate(plain, given, seed)
        assert len(ours) == len(theirs) and all(torch.equal(one, two) for one, two in zip(ours, theirs, strict=True))
    assert set(plan_of(model).names) != {"keep"} and least < told["keep"]
