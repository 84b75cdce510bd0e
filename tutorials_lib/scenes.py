"""Small worlds to look at: scenes of one or two objects, as latents, images and captions.

A scene is its latents. `render` makes the image, `caption_scenes` makes captions, and `describes`
says whether a caption is true. Everything is deterministic in latents and seeds, so what a model
knows of a latent can be measured.

>>> from tutorials_lib import scenes
>>> batch = scenes.sample_scenes(3, singles=1.0, seed=0)
>>> scenes.render(batch).shape
torch.Size([3, 3, 48, 48])
>>> bool(scenes.describes(scenes.caption_scenes(batch, seed=0)[0], batch)[0])
True
"""

from __future__ import annotations

from tutorials_lib._raycast import render, segment
from tutorials_lib._scene_captions import (
    Claim,
    Mention,
    Wording,
    canonical,
    caption_scenes,
    claims_of,
    describes,
    parse_caption,
    replace_concept,
    same_meaning,
    sample_wordings,
    swap,
    vocabulary,
    write_caption,
)
from tutorials_lib._scene_latents import (
    ABSENT,
    COLOUR_RGB,
    COLOURS,
    DOMAINS,
    OTHER_COLOUR,
    RELATION_MARGIN,
    SHAPES,
    SIZE_RANGE,
    SIZE_SPLIT,
    Scenes,
    concatenate,
)
from tutorials_lib._scene_sampling import (
    HELD_OUT,
    binding_counts,
    combinations,
    concept_counts,
    in_support,
    private_latents,
    sample_scenes,
    shared_latents,
    shift_domain,
    swap_colours,
)

__all__ = [
    "ABSENT",
    "COLOURS",
    "COLOUR_RGB",
    "DOMAINS",
    "HELD_OUT",
    "OTHER_COLOUR",
    "RELATION_MARGIN",
    "SHAPES",
    "SIZE_RANGE",
    "SIZE_SPLIT",
    "Claim",
    "Mention",
    "Scenes",
    "Wording",
    "binding_counts",
    "canonical",
    "caption_scenes",
    "claims_of",
    "combinations",
    "concatenate",
    "concept_counts",
    "describes",
    "in_support",
    "parse_caption",
    "private_latents",
    "render",
    "replace_concept",
    "same_meaning",
    "sample_scenes",
    "sample_wordings",
    "segment",
    "shared_latents",
    "shift_domain",
    "swap",
    "swap_colours",
    "vocabulary",
    "write_caption",
]
