"""A tokenizer with one token per character, for models that are trained from scratch."""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, EOS = "<pad>", "<eos>"
# Printable ASCII and the line feed: what the shipped tasks ask and answer with.
CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))


def character_tokenizer() -> PreTrainedTokenizerFast:
    """Ids: 0 padding, 1 end of sequence, then `CHARACTERS` in their order."""
    vocabulary = {token: i for i, token in enumerate((PAD, EOS, *CHARACTERS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
    )
