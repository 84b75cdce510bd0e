"""What can be done to a caption: exchange, replace or add a concept, forget, generate by tokens.

Works on the captions of `tutorials_lib.scenes`, whose meaning is known.
"""

from __future__ import annotations

from tutorials_lib._caption_edits import OPERATORS, Edit, NoEdit

__all__ = ["OPERATORS", "Edit", "NoEdit"]
