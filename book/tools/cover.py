"""Render the picture of the landing page, book/assets/scenes.webp: python book/tools/cover.py.

The same objects five times: as a photograph, in another light, as a drawing, as a cartoon, in a
mess. The book's tests compare the file with what this script renders.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tutorials_lib import scenes

FILE = Path(__file__).resolve().parents[1] / "assets" / "scenes.webp"
SIDE = 240


def cover() -> np.ndarray:
    """Return the picture as uint8, shape (SIDE, 5 SIDE, 3)."""
    batch = scenes.sample_scenes(1, seed=0).replace(
        shape=torch.tensor([[0, 1]]),
        colour=torch.tensor([[0, 2]]),
        rgb=torch.tensor([[scenes.COLOUR_RGB[0], scenes.COLOUR_RGB[2]]]),
        size=torch.tensor([[0.44, 0.42]]),
        position=torch.tensor([[[-0.42, 0.1], [0.5, -0.15]]]),
        yaw=torch.tensor([[0.45, 0.0]]),
        light=torch.tensor([[-0.7, 0.85]]),
        background=torch.tensor([0.12]),
        camera=torch.zeros(1, 3),
        noise=torch.zeros(1),
        noise_seed=torch.tensor([4]),
    )
    shown = [scenes.shift_domain(batch, domain, seed=7) for domain in scenes.DOMAINS]
    shown = [one.replace(noise=torch.zeros(1)) for one in shown]
    images = [scenes.render(one, size=SIDE, supersample=3)[0] for one in shown]
    return torch.cat(images, dim=2).permute(1, 2, 0).numpy()


if __name__ == "__main__":
    Image.fromarray(cover()).save(FILE, quality=88, method=6)
    print(FILE)
