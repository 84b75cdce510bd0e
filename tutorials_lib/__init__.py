"""The helper library of a book on the theory of multimodal contrastive learning.

================  ==============================================================
`latents`         laws of coupled latents, their densities and PMI
`generators`      invertible mixings, the latent partial causal model, mechanisms
`contrastive`     symmetric InfoNCE, its population limit, encoders, a trainer
`information`     PMI, mutual information, the loss in KL form, discrete joints
`metrics`         linear R², MCC, leakage, modality gap, each with what it means
`explore`         figures with sliders, with and without a kernel
`plotting`        the book's one style of figures
================  ==============================================================
"""

__version__ = "0.1.0"
