"""Functions of PyTorch that are traced as something else than what the CPU does for them.

RMS norm and cross-entropy become operators of ours with a gradient, dropout the one operator
`native_dropout`; class weights and `one_hot` become operations that look at no tensor's value.
All give what PyTorch's own functions give.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

__all__ = ["WholeDropout", "WholeOperators"]


@torch.library.custom_op("isthmus::rms_norm", mutates_args=())
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, rstd) over the last dimension; statistics in f32 (f64 for f64)."""
    wide = x.to(torch.float64 if x.dtype == torch.float64 else torch.float32)
    rstd = torch.rsqrt(wide.square().mean(-1) + eps)
    out = wide * rstd[..., None]
    return (out if weight is None else out * weight).to(x.dtype), rstd


@torch.library.custom_op("isthmus::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx, dweight); dweight is empty without a weight."""
    wide, gradient = x.to(rstd.dtype), grad.to(rstd.dtype)
    normal = wide * rstd[..., None]
    scaled = gradient if weight is None else gradient * weight
    dx = rstd[..., None] * (scaled - normal * (scaled * normal).mean(-1, keepdim=True))
    if weight is None:
        return dx.to(x.dtype), x.new_empty(0)
    dweight = (gradient * normal).reshape(-1, x.shape[-1]).sum(0)
    return dx.to(x.dtype), dweight.to(weight.dtype)


def _keep_rms_norm(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])


def _rms_norm_gradient(ctx: Any, grad: torch.Tensor, _rstd: Any) -> Any:
    x, weight, rstd = ctx.saved_tensors
    dx, dweight = rms_norm_backward(grad, x, rstd, weight)
    return dx, None if weight is None else dweight, None


rms_norm.register_autograd(_rms_norm_gradient, setup_context=_keep_rms_norm)


@torch.library.custom_op("isthmus::cross_entropy", mutates_args=())
def cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int, reduction: str,
    label_smoothing: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """(loss, lse, count) of logits [rows, classes] and integer targets [rows]."""
    wide = logits.to(torch.float64 if logits.dtype == torch.float64 else torch.float32)
    loss = F.cross_entropy(
        wide, target, ignore_index=ignore_index, reduction=reduction,
        label_smoothing=label_smoothing,
    )  # fmt: skip
    count = (target != ignore_index).sum().to(torch.float32)
    return loss.to(logits.dtype), torch.logsumexp(wide, -1), count


@torch.library.custom_op("isthmus::cross_entropy_backward", mutates_args=())
def cross_entropy_backward(
    grad: torch.Tensor, logits: torch.Tensor, target: torch.Tensor, lse: torch.Tensor,
    count: torch.Tensor, ignore_index: int, reduction: str, label_smoothing: float,
) -> torch.Tensor:  # fmt: skip
    """The gradient of the logits."""
    classes = logits.shape[-1]
    kept = target != ignore_index
    wanted = F.one_hot(torch.where(kept, target, 0).long(), classes).to(lse.dtype)
    wanted = (1.0 - label_smoothing) * wanted + label_smoothing / classes
    share = grad.to(lse.dtype) / count if reduction == "mean" else grad.to(lse.dtype)
    dlogits = (torch.exp(logits.to(lse.dtype) - lse[:, None]) - wanted) * share.reshape(-1, 1)
    return torch.where(kept[:, None], dlogits, 0.0).to(logits.dtype)


def _keep_cross_entropy(ctx: Any, inputs: Any, output: Any) -> None:
    logits, target, *ctx.settings = inputs
    ctx.save_for_backward(logits, target, output[1], output[2])


def _cross_entropy_gradient(ctx: Any, grad: torch.Tensor, _lse: Any, _count: Any) -> Any:
    dlogits = cross_entropy_backward(grad, *ctx.saved_tensors, *ctx.settings)
    return dlogits, None, None, None, None


cross_entropy.register_autograd(_cross_entropy_gradient, setup_context=_keep_cross_entropy)


def _whole_dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, **named: Any) -> Any:
    training = named.get("train", training)
    if not training or p == 0.0:
        return x
    return torch.ops.aten.native_dropout(x, float(p), True)[0]


def _whole_rms_norm(
    x: torch.Tensor, normalized_shape: Any, weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:  # fmt: skip
    shape = tuple(normalized_shape)
    size = torch.Size(shape).numel()
    flat = x.reshape(*x.shape[: x.dim() - len(shape)], size)
    scale = None if weight is None else weight.reshape(size)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return torch.ops.isthmus.rms_norm(flat, scale, eps)[0].reshape(x.shape)


def _whole_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, weight: Any = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    special = size_average is not None or reduce is not None
    if special or target.is_floating_point() or target.dim() != max(logits.dim() - 1, 0):
        return NotImplemented
    rows = logits[None] if logits.dim() == 1 else logits.movedim(1, -1)
    rows, target_rows = rows.reshape(-1, rows.shape[-1]), target.reshape(-1)
    if weight is not None:
        loss = _weighted(rows, target_rows, weight, ignore_index, reduction, label_smoothing)
    else:
        loss = torch.ops.isthmus.cross_entropy(
            rows, target_rows, ignore_index, reduction, float(label_smoothing)
        )[0]
    return loss.reshape(target.shape) if reduction == "none" else loss


def _weighted(
    rows: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, ignore_index: int,
    reduction: str, label_smoothing: float,
) -> torch.Tensor:  # fmt: skip
    """Cross-entropy with class weights: the mean is divided by the weights of the targets."""
    kept = target != ignore_index
    index = torch.where(kept, target, 0)
    log_probability = F.log_softmax(rows, -1)
    each = torch.where(kept, weight[index], 0.0)
    loss = -each * log_probability.gather(1, index[:, None])[:, 0]
    if label_smoothing:
        spread = torch.where(kept, -(log_probability * weight).sum(1), 0.0)
        loss = (1.0 - label_smoothing) * loss + label_smoothing / rows.shape[1] * spread
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / each.sum()


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> Any:
    if num_classes < 1:
        return NotImplemented  # PyTorch would take the largest value of the tensor
    classes = torch.arange(num_classes, device=tensor.device)
    return (tensor[..., None] == classes).to(torch.int64)


class WholeDropout(TorchFunctionMode):
    """Dropout as the one operator `native_dropout`, which the CPU otherwise takes apart."""

    _whole: ClassVar[dict[Any, Any]] = {F.dropout: _whole_dropout, torch.dropout: _whole_dropout}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = self._whole.get(func)
        result = NotImplemented if made is None else made(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


class WholeOperators(WholeDropout):
    """Dropout, RMS norm and cross-entropy as one operator each; one_hot without a look."""

    _whole: ClassVar[dict[Any, Any]] = {
        **WholeDropout._whole,
        F.rms_norm: _whole_rms_norm,
        torch.rms_norm: _whole_rms_norm,
        F.cross_entropy: _whole_cross_entropy,
        F.one_hot: _one_hot,
    }
