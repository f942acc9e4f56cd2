"""Tiny Hugging Face models with seeded weights, their tokenizers, and their logits."""

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    LlamaConfig, LlamaForCausalLM, Ministral3Config, Ministral3ForCausalLM, MistralConfig, MistralForCausalLM,
    Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
)

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "ministral3": (Ministral3Config, Ministral3ForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


@dataclass
class Run:
    """One stretch of positions that logits are computed for; `suffix` names its reference file."""

    suffix: str = ""
    start: int = 0
    length: int = 48


@dataclass
class Spec:
    """What is made for one model. `rope` is transformers' `rope_parameters`; `types` are the GGUF files."""

    name: str
    family: str
    tokenizer: str
    dims: dict
    rope: dict
    tied: bool = False
    seed: int = 0
    # How far queries and keys spread: a sharper softmax shows more in the logits, and multiplies rounding noise more.
    qk_gain: float = 1.5
    types: tuple = ("F32",)
    runs: tuple = (Run(),)
    extra: dict = field(default_factory=dict)
    architecture: str | None = None  # overrides the class name in config.json, which is what the converter goes by
    hf_dtype: str | None = None  # also commit the Hugging Face folder; the weights are rounded to this type
    hf_shard: str = "1GB"  # largest safetensors file of that folder


# The first tokens of Mistral's tekken vocabularies, in their order.
MISTRAL_CONTROL = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] "
    "[IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
).split()
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_SPLIT = QWEN_SPLIT.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
TEKKEN_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MISTRAL_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]"
    "{% elif m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
# pre: the GGUF name of the pre-tokenizer; control: tokens marked special; added: tokens that are not.
TOKENIZERS = {
    "qwen2": dict(pre="qwen2", split=QWEN_SPLIT, nfc=True, control=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                  added=["<think>", "</think>", "<tool_call>", "</tool_call>"], bos=None, eos="<|im_end|>", template=CHATML),
    "tekken": dict(pre="tekken", split=TEKKEN_SPLIT, nfc=False, control=MISTRAL_CONTROL, added=[],
                   bos="<s>", eos="</s>", template=MISTRAL_TEMPLATE),
    "llama3": dict(pre="llama-bpe", split=LLAMA_SPLIT, nfc=False, added=[], bos="<|begin_of_text|>", eos="<|eot_id|>", template=None,
                   control=["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
}
MERGES = "Ġ t,h e,i n,r e,o n,Ġt he,e r,Ġ a,a t,Ġ s,o r,e n,Ġ o,Ġ w,i s,i t,n d,Ġ c,e s,Ġ f,in g,a n,o u,Ġo f,e d".split(",")
VOCAB_SIZE = 288


def write_tokenizer(kind: str, folder: Path):
    """A byte-level BPE of VOCAB_SIZE tokens: control tokens, the 256 bytes, merges, ordinary added tokens."""
    about = TOKENIZERS[kind]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = MERGES[: VOCAB_SIZE - 256 - len(about["control"]) - len(about["added"])]
    texts = about["control"] + alphabet + [m.replace(" ", "") for m in merges]
    vocab = {text: i for i, text in enumerate(texts)}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in merges]))
    if about["nfc"]:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(about["split"]), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(about["control"])
    tokenizer.add_tokens(about["added"])
    assert tokenizer.get_vocab_size() <= VOCAB_SIZE  # what is left over becomes unused tokens
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": about["bos"] is not None,
        "bos_token": about["bos"], "eos_token": about["eos"], "chat_template": about["template"],
    }
    config = {key: value for key, value in config.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def special_id(kind: str, text: str | None):
    return None if text is None else TOKENIZERS[kind]["control"].index(text)


def build(spec: Spec) -> torch.nn.Module:
    """The model in f32 with weights large enough that attention, norms and biases all show in the logits."""
    config_class, model_class = CLASSES[spec.family]
    about = TOKENIZERS[spec.tokenizer]
    config = config_class(
        **spec.dims, vocab_size=VOCAB_SIZE, rope_parameters=dict(spec.rope), tie_word_embeddings=spec.tied,
        bos_token_id=special_id(spec.tokenizer, about["bos"]), eos_token_id=special_id(spec.tokenizer, about["eos"]),
        pad_token_id=None, attn_implementation="eager", **spec.extra,
    )
    model = model_class(config).eval().float()
    rng = np.random.default_rng(spec.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = rng.standard_normal(tuple(parameter.shape), dtype=np.float32)
            if name.endswith("bias"):
                value = 0.5 * noise
            elif parameter.dim() == 1:
                value = 1 + 0.2 * noise
            else:
                gain = 2 if "embed" in name or "lm_head" in name else spec.qk_gain if "q_proj" in name or "k_proj" in name else 1
                value = noise * np.float32(gain / parameter.shape[1] ** 0.5)
            value = torch.from_numpy(np.asarray(value, dtype=np.float32))
            if spec.hf_dtype:
                value = value.to(getattr(torch, spec.hf_dtype)).float()
            parameter.copy_(value)
    return model


def save(model: torch.nn.Module, spec: Spec, folder: Path):
    """The folder as transformers writes it, in `hf_dtype` if the spec has one (the weights are exact in it)."""
    dtype = getattr(torch, spec.hf_dtype or "float32")
    # A copy: the conversion also rounds the buffer of rotation frequencies.
    copy.deepcopy(model).to(dtype).save_pretrained(folder, max_shard_size=spec.hf_shard)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if spec.architecture:
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = [spec.architecture]
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_tokenizer(spec.tokenizer, folder)


def write_old_config(folder: Path):
    """Rewrites config.json with the keys that transformers 4 wrote, as most published folders have them."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.51.0"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def exact_angles(model: torch.nn.Module):
    """Makes the rotation angles position x frequency without rounding them to f32. At position 200000 that rounding
    moves an angle by up to 0.008, differently at each position, and two right f32 implementations then disagree."""
    rotary = model.model.rotary_emb

    def forward(x, position_ids):
        angles = position_ids[..., None].double() * rotary.inv_freq.double()
        angles = torch.cat((angles, angles), dim=-1)
        scale = rotary.attention_scaling
        return (angles.cos() * scale).to(x.dtype), (angles.sin() * scale).to(x.dtype)

    original, rotary.forward = rotary.forward, forward
    return original


def logits(model: torch.nn.Module, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        output = model(input_ids=ids[None], position_ids=positions[None], use_cache=False)
    return output.logits[0].float().contiguous()


def greedy(model: torch.nn.Module, ids: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` likeliest tokens one after the other; refuses a seed that makes the choice a close one."""
    start = len(ids)
    for _ in range(count):
        last = logits(model, ids, torch.arange(len(ids)))[-1]
        top = last.topk(2).values
        assert top[0] - top[1] > 1e-3, "two tokens are nearly equally likely: choose another seed"
        ids = torch.cat((ids, last.argmax()[None]))
    return ids[start:].contiguous()


def reference(model: torch.nn.Module, spec: Spec, run: Run) -> dict[str, torch.Tensor]:
    """input_ids [n], position_ids [n], logits [n, vocab]; `greedy` (the 16 tokens that follow) where the run starts
    at 0, else `logits_exact_angles` (see `exact_angles`)."""
    rng = np.random.default_rng(1000 + spec.seed)
    ids = torch.from_numpy(rng.integers(len(TOKENIZERS[spec.tokenizer]["control"]), VOCAB_SIZE, run.length))
    positions = torch.arange(run.start, run.start + run.length)
    out = {"input_ids": ids, "position_ids": positions, "logits": logits(model, ids, positions)}
    if run.start == 0:
        out["greedy"] = greedy(model, ids, 16)
    else:
        original = exact_angles(model)
        out["logits_exact_angles"] = logits(model, ids, positions)
        model.model.rotary_emb.forward = original
    return out
