"""Text to tokens and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class TextError(ValueError):
    """A text that a tokenizer cannot represent, in one sentence."""


class TextTokenizer:
    """A transformers tokenizer, reduced to what the track needs.

    Args:
        tokenizer: With an end-of-sequence token.

    Attributes:
        eos_id: Ends a completion.
        pad_id: Fills rows; may equal `eos_id`, for nothing is ever inferred from it.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.eos_id = int(tokenizer.eos_token_id)
        pad = tokenizer.pad_token_id
        self.pad_id = self.eos_id if pad is None else int(pad)

    def prompt(self, text: str) -> list[int]:
        """Tokens of a prompt: one turn of the chat template where there is one.

        Raises:
            TextError: The tokenizer lacks a character.
        """
        if self.tokenizer.chat_template is None:
            return self._encode(text, special=True)
        turn = [{"role": "user", "content": text}]
        rendered = self.tokenizer.apply_chat_template(
            turn, add_generation_prompt=True, tokenize=False
        )
        return self._encode(rendered, special=False)  # the template holds them

    def completion(self, text: str) -> list[int]:
        """Tokens of a completion that ends: the last one is `eos_id`.

        Raises:
            TextError: The tokenizer lacks a character.
        """
        return [*self._encode(text, special=False), self.eos_id]

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of tokens, without the special ones."""
        text: str = self.tokenizer.decode(list(tokens), skip_special_tokens=True)
        return text

    def _encode(self, text: str, special: bool) -> list[int]:
        try:
            ids: list[int] = self.tokenizer(text, add_special_tokens=special).input_ids
        except Exception as error:  # what the Rust library raises has no class of its own
            raise TextError(f"the tokenizer has no token for a part of {text!r}") from error
        return ids
