"""A small GPT in plain PyTorch, captured as the program that `isthmus train` runs.

    python examples/gpt.py --out gpt.json
    python examples/gpt.py --layers 6 --width 384 --heads 6 --length 256 --batch 8 --out big.json

Needs the extra: pip install 'isthmus[torch]'
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import isthmus


@dataclass(frozen=True)
class Config:
    layers: int = 4
    width: int = 128
    heads: int = 4
    length: int = 128
    batch: int = 16
    vocabulary: int = 256
    dropout: float = 0.0
    tied: bool = False


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and a residual."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        residual = 1 / math.sqrt(2 * config.layers)
        for linear, scale in ((self.qkv, 1), (self.project, residual),
                              (self.widen, 1), (self.narrow, residual)):  # fmt: skip
            nn.init.normal_(linear.weight, std=scale / math.sqrt(linear.in_features))
            nn.init.zeros_(linear.bias)

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        batch, length, width = x_BTD.shape
        qkv = self.qkv(self.norm_attention(x_BTD))
        qkv = qkv.view(batch, length, 3, self.heads, width // self.heads)
        q_BHTK, k_BHTK, v_BHTK = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, is_causal=True)
        attended = attended.transpose(1, 2).reshape(batch, length, width)
        x_BTD = x_BTD + F.dropout(self.project(attended), self.dropout, self.training)
        hidden = F.gelu(self.widen(self.norm_mlp(x_BTD)))
        return x_BTD + F.dropout(self.narrow(hidden), self.dropout, self.training)


class GPT(nn.Module):
    """Token and position embedding, blocks, a final norm, logits over the vocabulary."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.empty(config.length, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)
        if config.tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        x_BTD = self.tokens(tokens_BT) + self.positions[: tokens_BT.shape[1]]
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return self.head(self.norm(x_BTD))


def loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model(batch["tokens"])
    return F.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())


def make(config: Config) -> tuple[GPT, torch.optim.AdamW, dict[str, torch.Tensor]]:
    """Model, optimizer and an example batch."""
    torch.manual_seed(0)
    with isthmus.record_initialisers():
        model = GPT(config)
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    shape = (config.batch, config.length)
    batch = {
        "tokens": torch.randint(0, config.vocabulary, shape),
        "targets": torch.randint(0, config.vocabulary, shape),
    }
    return model, optimizer, batch


def capture(config: Config, *, check: bool = True) -> isthmus.Program:
    """The training program of a GPT."""
    model, optimizer, batch = make(config)
    return isthmus.capture(
        model, loss, optimizer, batch,
        forward=lambda m, b: m(b["tokens"]), forward_batch={"tokens": batch["tokens"][:1]},
        clip_norm=1.0, name="gpt", check=check,
        metadata={"vocabulary_size": config.vocabulary},
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in vars(Config()).items():
        if isinstance(value, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--out", type=Path, default=Path("gpt.json"))
    options = vars(parser.parse_args())
    out = options.pop("out")
    program = capture(Config(**options))
    program.save(out)
    nodes = len(program.graphs["train"].nodes)
    print(f"{program.metadata['parameters']:,} parameters, {nodes} nodes in a step: saved {out}")


if __name__ == "__main__":
    main()
