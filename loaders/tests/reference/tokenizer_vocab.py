"""Real vocabularies as GGUF files: Qwen3's tokenizer.json and mistral-common's tekken, whole or cut down.

What is written is what llama.cpp's converter writes for these models: added tokens that are special have type CONTROL,
the others USER_DEFINED; every way to split a tekken token into two others is a merge, in order of the token's rank.
"""

import json
from importlib import resources

import gguf
from mistral_common.tokens.tokenizers.base import TokenizerVersion
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4


def byte_alphabet():
    """GPT-2's character for each byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


ALPHABET = byte_alphabet()


def letters(token):
    return "".join(ALPHABET[byte] for byte in token)


def write_gguf(path, pre, tokens, types, merges, **special):
    """A GGUF file with a vocabulary and nothing else; `special`: bos, eos, unk, pad, add_bos, chat_template."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    setters = {
        "bos": writer.add_bos_token_id,
        "eos": writer.add_eos_token_id,
        "unk": writer.add_unk_token_id,
        "pad": writer.add_pad_token_id,
        "add_bos": writer.add_add_bos_token,
        "chat_template": writer.add_chat_template,
    }
    for name, value in special.items():
        setters[name](value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def cut_hf(tokenizer, normal):
    """A tokenizer.json (as a dict) with its first `normal` tokens and the merges among them, added tokens renumbered."""
    tokenizer = json.loads(json.dumps(tokenizer))
    model = tokenizer["model"]
    model["vocab"] = {token: id for token, id in model["vocab"].items() if id < normal}
    keep = lambda a, b: a in model["vocab"] and b in model["vocab"] and a + b in model["vocab"]
    model["merges"] = [pair for pair in model["merges"] if keep(*pair)]
    for n, added in enumerate(tokenizer["added_tokens"]):
        added["id"] = normal + n
    return tokenizer


def hf_gguf(path, pre, tokenizer, **special):
    """Writes a tokenizer.json (as a dict) as a GGUF file."""
    entries = {id: (token, NORMAL) for token, id in tokenizer["model"]["vocab"].items()}
    for added in tokenizer["added_tokens"]:
        entries[added["id"]] = (added["content"], CONTROL if added["special"] else USER_DEFINED)
    assert sorted(entries) == list(range(len(entries)))
    tokens, types = zip(*(entries[id] for id in range(len(entries))))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["model"]["merges"]]
    ids = {name: tokens.index(text) for name, text in special.items() if name in ("bos", "eos")}
    write_gguf(path, pre, tokens, types, merges, **special | ids)


def tekken_file(name):
    """mistral-common's vocabulary file `name`."""
    return json.loads(resources.files("mistral_common.data").joinpath(name).read_text())


def later_special_tokens():
    """The control tokens of version v13, in the form in which tekken.json lists them since v11."""
    later = {32: "[ARGS]", 33: "[CALL_ID]", 34: "[THINK]", 35: "[/THINK]"}
    special = list(Tekkenizer.DEPRECATED_SPECIAL_TOKENS)
    for id in range(len(special), max(later) + 1):
        special.append({"rank": id, "token_str": later.get(id, f"<SPECIAL_{id}>"), "is_control": True})
    return special


def tekken(name, texts=None):
    """mistral-common's tokenizer `name`; with `texts`, the part of its vocabulary that they use, renumbered."""
    file = tekken_file(name)
    config, entries = file["config"], file["vocab"]
    special, size = config["default_num_special_tokens"], config["default_vocab_size"]
    whole = tekkenizer(file, entries, special, size)
    if texts is None:
        return whole
    used = {id - special for text in texts for id in whole.encode(text, bos=False, eos=False)}
    ranks = whole._tekken_token2id_nospecial
    by_rank = {rank: token for token, rank in ranks.items()}
    kept, waiting = set(range(256)), list(used)
    while waiting:
        rank = waiting.pop()
        if rank not in kept:
            kept.add(rank)
            waiting += [ranks[part] for part in last_merge(by_rank[rank], ranks)]
    entries = [entry | {"rank": new} for new, entry in enumerate(entries[rank] for rank in sorted(kept))]
    return tekkenizer(file, entries, 24, 24 + len(entries))


def tekkenizer(file, entries, special, size):
    return Tekkenizer(
        vocab=entries,
        special_tokens=list(file.get("special_tokens") or Tekkenizer.DEPRECATED_SPECIAL_TOKENS),
        pattern=file["config"]["pattern"],
        vocab_size=size,
        num_special_tokens=special,
        version=TokenizerVersion(file["config"]["version"]),
    )


def last_merge(token, ranks):
    """The two tokens that BPE joins last when it makes `token`."""
    parts = [token[n : n + 1] for n in range(len(token))]
    while len(parts) > 2:
        pairs = [(ranks.get(left + right, len(ranks)), n) for n, (left, right) in enumerate(zip(parts, parts[1:]))]
        _, n = min(pairs)
        parts[n : n + 2] = [parts[n] + parts[n + 1]]
    return parts


def tekken_gguf(path, tokenizer):
    """Writes a tekken tokenizer as a GGUF file."""
    ranks = tokenizer._tekken_token2id_nospecial
    by_rank = {rank: token for token, rank in ranks.items()}
    special = [tokenizer.id_to_piece(id) for id in range(tokenizer.num_special_tokens)]
    normal = [by_rank[rank] for rank in range(len(by_rank))]
    merges = []
    for token in normal[256:]:
        splits = [(token[:n], token[n:]) for n in range(1, len(token))]
        splits = [pair for pair in splits if pair[0] in ranks and pair[1] in ranks]
        assert splits, token
        splits.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges += [f"{letters(left)} {letters(right)}" for left, right in splits]
    write_gguf(
        path,
        "tekken",
        special + [letters(token) for token in normal],
        [CONTROL] * len(special) + [NORMAL] * len(normal),
        merges,
        bos=tokenizer.bos_id,
        eos=tokenizer.eos_id,
        add_bos=True,
    )


def sentencepiece(name, texts=None):
    """mistral-common's SentencePiece model `name` and its tokenizer; with `texts`, the pieces that they use, renumbered."""
    from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(resources.files("mistral_common.data").joinpath(name).read_bytes())
    if texts is not None:
        whole = SentencePieceProcessor(model_proto=model.SerializeToString())
        kept = [piece for piece in model.pieces if piece.type != piece.NORMAL and "control_" not in piece.piece]
        normal = {piece.piece: piece for piece in model.pieces if piece.type == piece.NORMAL}
        used = {piece for text in texts for piece in whole.encode(text, out_type=str)} & normal.keys()
        waiting = list(used)
        while waiting:
            piece = waiting.pop()
            parts = [part for n in range(1, len(piece)) for part in (piece[:n], piece[n:]) if part in normal]
            waiting += set(parts) - used
            used |= set(parts)
        kept += [piece for text, piece in normal.items() if text in used]
        pieces = [sentencepiece_model_pb2.ModelProto.SentencePiece.FromString(piece.SerializeToString()) for piece in kept]
        del model.pieces[:]
        model.pieces.extend(pieces)
        model.trainer_spec.vocab_size = len(pieces)
    return model, SentencePieceProcessor(model_proto=model.SerializeToString())


def sentencepiece_gguf(path, model):
    """Writes a SentencePiece model as a GGUF file."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece.piece for piece in model.pieces])
    writer.add_token_scores([piece.score for piece in model.pieces])
    writer.add_token_types([piece.type for piece in model.pieces])
    writer.add_bos_token_id(model.trainer_spec.bos_id)
    writer.add_eos_token_id(model.trainer_spec.eos_id)
    writer.add_unk_token_id(model.trainer_spec.unk_id)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(model.normalizer_spec.add_dummy_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
