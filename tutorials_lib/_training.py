"""A small encoder and its trainer; `tutorials_lib.contrastive` is where to import them from."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tutorials_lib._progress import progress_bar
from tutorials_lib._validation import (
    as_generator,
    check_finite,
    check_integer,
    check_positive,
    resolve_device,
)

__all__ = ["Encoder", "History", "train"]

# Rows of training data drawn ahead and held in memory at a time.
_ROWS_PER_DRAW = 2**16

# Beyond this |log τ| the scale 1/τ or its square leaves the range of float32; NaN fails it too.
_LARGEST_LOG_SCALE = 40.0


class Encoder(nn.Module):
    """A residual network with a linear skip, onto a sphere, into a box, or into R^d.

    ``y = W_skip x + W_out h_depth`` with ``h_0 = W_in x`` and ``h_{l+1} = h_l + GELU(W_l h_l)``.
    Then ``y`` is scaled to unit length (sphere), squashed by a sigmoid (box) or left (euclidean).
    The skip makes the linear answer easy to reach; the output keeps the codomain that the theorem
    asks for. Ahead of all that, x is centred and whitened by fixed numbers, see `whiten`.

    Parameters
    ----------
    in_dim, out_dim
        Dimensions of observation and embedding.
    codomain
        ``"sphere"``: unit vectors; ``"box"``: (0, 1)^out_dim; ``"euclidean"``: all of R^out_dim.
    width
        Hidden units.
    depth
        Residual blocks.
    seed
        Initial weights depend on this alone.

    Raises
    ------
    ValueError
        If a size is below 1 or ``codomain`` is unknown.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        codomain: str = "sphere",
        width: int = 128,
        depth: int = 3,
        seed: int | torch.Generator,
    ) -> None:
        super().__init__()
        in_dim = check_integer("in_dim", in_dim, 1)
        out_dim = check_integer("out_dim", out_dim, 1)
        width = check_integer("width", width, 1)
        depth = check_integer("depth", depth, 1)
        if codomain not in ("sphere", "box", "euclidean"):
            raise ValueError(f"codomain must be 'sphere', 'box' or 'euclidean', got {codomain!r}")
        self.codomain = codomain
        self.register_buffer("whitened", torch.tensor(False))
        self.register_buffer("center", torch.zeros(in_dim))
        self.register_buffer("whitener", torch.eye(in_dim))
        generator = as_generator(seed)
        self.skip = _linear(in_dim, out_dim, generator)
        self.lift = _linear(in_dim, width, generator)
        self.blocks = nn.ModuleList(_linear(width, width, generator) for _ in range(depth))
        self.out = _linear(width, out_dim, generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Encode observations of shape (N, in_dim) as embeddings of shape (N, out_dim)."""
        x = (x - self.center) @ self.whitener
        hidden = self.lift(x)
        for block in self.blocks:
            hidden = hidden + functional.gelu(block(hidden))
        y = self.skip(x) + self.out(hidden)
        if self.codomain == "sphere":
            return functional.normalize(y, dim=1)
        if self.codomain == "box":
            return torch.sigmoid(y)
        return y

    @torch.no_grad()
    def whiten(self, x: torch.Tensor) -> None:
        """Give the observations zero mean and identity covariance before the first layer.

        An invertible affine change of x, fixed from here on: what the encoder can represent stays
        the same, but Adam needs several times fewer steps. Directions without variance keep their
        scale.

        Parameters
        ----------
        x
            Observations to take mean and covariance from, shape (N, in_dim), N >= 2.

        Raises
        ------
        ValueError
            If ``x`` has another width, fewer than two rows, or NaN or infinite entries.
        """
        check_finite("x", x)
        if x.ndim != 2 or x.shape[1] != len(self.center) or len(x) < 2:
            raise ValueError(
                f"x must have at least 2 rows and {len(self.center)} columns, got shape "
                f"{tuple(x.shape)}"
            )
        x = x.double().cpu()
        variances, directions = torch.linalg.eigh(torch.cov(x.T).reshape(x.shape[1], -1))
        varies = variances > 1e-10 * variances[-1]
        scales = torch.where(varies, variances.clamp(min=0).rsqrt(), 1.0)
        self.center.copy_(x.mean(0))
        self.whitener.copy_(directions * scales @ directions.T)
        self.whitened.fill_(True)


class History(NamedTuple):
    """What a training run left behind; one entry per ``eval_every`` steps.

    Attributes
    ----------
    step
        Steps done, shape (entries,).
    loss
        Mean batch loss since the entry before, in nats, shape (entries,).
    temperature
        τ after the step, shape (entries,); NaN for a loss module without a temperature.
    seconds
        Wall time of the run.
    """

    step: np.ndarray
    loss: np.ndarray
    temperature: np.ndarray
    seconds: float


def train(
    sampler: Callable[..., tuple[Any, ...]],
    encoder_x: nn.Module,
    encoder_t: nn.Module,
    loss: nn.Module,
    *,
    steps: int,
    batch_size: int,
    learning_rate: float = 1e-2,
    temperature_learning_rate: float | None = None,
    seed: int | torch.Generator,
    device: str | torch.device | None = None,
    progress: bool = True,
    eval_every: int = 50,
    callback: Callable[[int], None] | None = None,
) -> History:
    """Train two encoders, and the loss's temperature, in place on fresh pairs.

    Adam with a one-cycle learning rate. Every step sees new data; many batches are drawn at once,
    so that sampling costs little. An `Encoder` that was not whitened yet is whitened on the first
    of these draws.

    Parameters
    ----------
    sampler
        Called as ``sampler(size, seed=generator)``; returns a tuple whose first two entries are
        x and t of shape (size, ·), for example ``LatentPartialCausalModel.sample``.
    encoder_x, encoder_t
        Modules from observations to embeddings; one shared module is allowed.
    loss
        Module called on two batches of embeddings, for example `ContrastiveLoss`.
    steps, batch_size
        Number of steps and pairs per step.
    learning_rate
        The peak of the one-cycle schedule.
    temperature_learning_rate
        The same for the loss's own parameters; ``None`` takes ``learning_rate``. On a box, whose
        axes must be found before the temperature grows sharp, slower is safer.
    seed
        An integer or a generator; drives the data.
    device
        Where to train; ``None`` takes the best there is.
    progress
        Whether to show a progress bar.
    eval_every
        Steps between entries of the history.
    callback
        Called as ``callback(step)`` at each entry, without gradients.

    Returns
    -------
    History
        Shorter than asked for if the run was interrupted from the keyboard.

    Raises
    ------
    ValueError
        If a number is out of range, or the sampler returns another number of rows than asked for,
        or NaN or infinite observations.
    FloatingPointError
        If an embedding, the loss or the temperature stops being finite; names the step.
    """
    steps = check_integer("steps", steps, 1)
    batch_size = check_integer("batch_size", batch_size, 2)
    eval_every = check_integer("eval_every", eval_every, 1)
    learning_rate = check_positive("learning_rate", learning_rate)
    temperature_learning_rate = check_positive(
        "temperature_learning_rate",
        learning_rate if temperature_learning_rate is None else temperature_learning_rate,
    )
    device = resolve_device(device)
    for module in (encoder_x, encoder_t, loss):
        module.to(device).train()
    # A module passed twice, as one shared encoder, gives its parameters once.
    groups = [{"params": list(nn.ModuleList([encoder_x, encoder_t]).parameters())}]
    rates = [learning_rate]
    if any(True for _ in loss.parameters()):
        groups.append({"params": list(loss.parameters())})
        rates.append(temperature_learning_rate)
    optimiser = torch.optim.Adam(groups, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=rates, total_steps=max(steps, 2)
    )
    batches = _batches(
        sampler, steps, batch_size, as_generator(seed), device, encoders=(encoder_x, encoder_t)
    )

    entries: list[tuple[int, float, float]] = []
    recent: list[float] = []
    started = time.perf_counter()
    with contextlib.suppress(KeyboardInterrupt), progress_bar(range(steps), show=progress) as bar:
        for step, (x, t) in zip(bar, batches, strict=True):
            code_x, code_t = encoder_x(x), encoder_t(t)
            if not bool(torch.isfinite(code_x).all() & torch.isfinite(code_t).all()):
                raise _diverged(step, "an embedding is", learning_rate)
            log_scale = getattr(loss, "log_scale", None)
            if log_scale is not None and not abs(log_scale.item()) < _LARGEST_LOG_SCALE:
                raise _diverged(step, "the temperature is", learning_rate)
            value = loss(code_x, code_t)
            recent.append(value.item())
            if not math.isfinite(recent[-1]):
                raise _diverged(step, "the loss is", learning_rate)
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            optimiser.step()
            schedule.step()
            if (step + 1) % eval_every == 0 or step + 1 == steps:
                temperature = getattr(loss, "temperature", math.nan)
                entries.append((step + 1, float(np.mean(recent)), temperature))
                bar.set_postfix(loss=f"{entries[-1][1]:.3f}", temperature=f"{temperature:.3f}")
                recent.clear()
                if callback is not None:
                    with torch.no_grad():
                        callback(step + 1)
    for module in (encoder_x, encoder_t, loss):
        module.eval()
    step_column, loss_column, temperature_column = (
        zip(*entries, strict=True) if entries else ((), (), ())
    )
    return History(
        step=np.array(step_column, dtype=int),
        loss=np.array(loss_column, dtype=float),
        temperature=np.array(temperature_column, dtype=float),
        seconds=time.perf_counter() - started,
    )


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Build a linear layer with variance 1/inputs weights and zero bias, drawn from generator."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    nn.init.normal_(layer.weight, std=inputs**-0.5, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def _batches(
    sampler: Callable[..., tuple[Any, ...]],
    steps: int,
    batch_size: int,
    generator: torch.Generator,
    device: torch.device,
    encoders: tuple[nn.Module, nn.Module],
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield ``steps`` batches (x, t), drawing many at a time; whiten new encoders on the first."""
    per_draw = max(1, _ROWS_PER_DRAW // batch_size)
    for start in range(0, steps, per_draw):
        count = min(per_draw, steps - start)
        x, t = sampler(count * batch_size, seed=generator)[:2]
        for name, observations in (("x", x), ("t", t)):
            if not isinstance(observations, torch.Tensor):
                raise TypeError(
                    f"the sampler's {name} must be a tensor, got {type(observations).__name__}"
                )
            if len(observations) != count * batch_size:
                raise ValueError(
                    f"the sampler's {name} must have the {count * batch_size} rows asked for, "
                    f"got {len(observations)}"
                )
        check_finite("the sampler's x", x)
        check_finite("the sampler's t", t)
        for encoder, observations in zip(encoders, (x, t), strict=True):
            if isinstance(encoder, Encoder) and not encoder.whitened:
                encoder.whiten(observations)
        yield from zip(x.to(device).split(batch_size), t.to(device).split(batch_size), strict=True)


def _diverged(step: int, what: str, learning_rate: float) -> FloatingPointError:
    return FloatingPointError(
        f"{what} not finite at step {step} of training; lower learning_rate (now "
        f"{learning_rate:g}), start from a larger temperature, or scale the observations"
    )
