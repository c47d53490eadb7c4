"""How a question becomes a prompt: templates are data, chosen by name."""

from __future__ import annotations

import difflib

TEMPLATES = {
    # For models that know nothing but how sums go on.
    "equals": "{question}=",
    "answer": "{question}\nEnd with # and the answer alone, for example #42.\n",
    "steps": (
        "{question}\nThink step by step, then end with # and the answer alone, for example #42.\n"
    ),
    "hashes": (
        "{question}\nThink step by step, then end with #### and the answer alone, for example "
        "#### 42.\n"
    ),
    "boxed": "{question}\nThink step by step, and put the final answer into \\boxed{}.\n",
}


class PromptError(ValueError):
    """A template that does not exist, in one sentence."""


def render(template: str, question: str) -> str:
    """The prompt of a question.

    Raises:
        PromptError: There is no template of that name.
    """
    if template not in TEMPLATES:
        near = difflib.get_close_matches(template, TEMPLATES, n=1, cutoff=0.5)
        hint = f"; nearest: {near[0]}" if near else ""
        raise PromptError(f"unknown prompt {template!r}; known: {', '.join(TEMPLATES)}{hint}")
    return TEMPLATES[template].replace("{question}", question)
