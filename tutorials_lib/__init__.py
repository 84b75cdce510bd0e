"""The helper library of a book on the theory of multimodal contrastive learning.

================  ==============================================================
`latents`         laws of coupled latents, their densities and PMI
`generators`      invertible mixings, the latent partial causal model, mechanisms
`contrastive`     symmetric InfoNCE, its population limit, encoders, a trainer
`information`     PMI, mutual information, the loss in KL form, discrete joints
`metrics`         linear R², MCC, DCI, MIG, SAP, leakage, modality gap, chance levels
`ica`             FastICA for many embeddings, and evidence for what it finds
`scenes`          scenes as latents, their images and captions, and what is true of them
`captions`        edits of captions, token-level causal models, maps that forget
`clip`            any CLIP of open_clip, and the small ones that ship here; embeddings
`scene_scores`    what a CLIP can do on scenes: zero-shot, SWAP, REPLACE, relations
`probes`          few-shot splits, linear probes, Tip-Adapter, with their controls
`datasets`        ImageNet, its shifted test sets and few-shot sets, from local folders
`explore`         figures with sliders, with and without a kernel
`plotting`        the book's one style of figures
================  ==============================================================
"""

__version__ = "0.1.0"
