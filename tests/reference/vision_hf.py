"""Tiny Hugging Face models with a Pixtral tower: seeded weights, image features, logits."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import (
    LlavaConfig, LlavaForConditionalGeneration, Ministral3Config, Mistral3Config, Mistral3ForConditionalGeneration,
    MistralConfig, PixtralVisionConfig,
)

from models_hf import MISTRAL_CONTROL, VOCAB_SIZE, special_id, write_tokenizer

IMG, IMG_BREAK, IMG_END = (MISTRAL_CONTROL.index(text) for text in ("[IMG]", "[IMG_BREAK]", "[IMG_END]"))
TEXT_CLASSES = {"ministral3": Ministral3Config, "mistral": MistralConfig}
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


@dataclass
class Spec:
    """What is made for one model. `vision`, `text` and `extra` are keyword arguments of transformers' configurations;
    the shapes are in patches, rows x columns."""

    name: str
    text_family: str
    text: dict
    vision: dict
    extra: dict
    one: tuple[int, int]
    two: tuple[tuple[int, int], tuple[int, int]]
    pixtral_12b: bool = False  # LlavaForConditionalGeneration: neither norm nor patch merger in the projector
    seed: int = 0
    mean: tuple = CLIP_MEAN
    std: tuple = CLIP_STD

    @property
    def merge(self) -> int:
        return 1 if self.pixtral_12b else self.extra["spatial_merge_size"]


def build(spec: Spec) -> torch.nn.Module:
    """The model in f32, its matrices rounded to f16 so that an F16 file holds them exactly."""
    common = dict(
        text_config=TEXT_CLASSES[spec.text_family](
            **spec.text, vocab_size=VOCAB_SIZE, bos_token_id=special_id("tekken", "<s>"),
            eos_token_id=special_id("tekken", "</s>"), pad_token_id=None, tie_word_embeddings=False,
        ),
        vision_config=PixtralVisionConfig(**spec.vision, rope_parameters={"rope_type": "axial", "rope_theta": 1e4}),
        image_token_index=IMG, projector_hidden_act="gelu", vision_feature_layer=-1, tie_word_embeddings=False,
        attn_implementation="eager", **spec.extra,
    )
    if spec.pixtral_12b:
        model = LlavaForConditionalGeneration(LlavaConfig(**common, vision_feature_select_strategy="full"))
    else:
        model = Mistral3ForConditionalGeneration(Mistral3Config(**common))
    model = model.eval().float()
    fill(model, spec.seed)
    return model


def fill(model: torch.nn.Module, seed: int):
    """Norms away from 1, biases away from 0, and queries and keys that spread enough for the attention to be sharp:
    a wrong rotation angle then shows in every token."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = rng.standard_normal(tuple(parameter.shape), dtype=np.float32)
            if name.endswith("bias"):
                value = 0.5 * noise
            elif parameter.dim() == 1:
                value = 1 + 0.2 * noise
            else:
                gain = 2 if "embed_tokens" in name or "lm_head" in name or "linear_2" in name else 1
                if "q_proj" in name or "k_proj" in name:
                    gain = 2 if "vision_tower" in name else 1.5
                value = noise * np.float32(gain / parameter[0].numel() ** 0.5)
            value = torch.from_numpy(np.asarray(value, dtype=np.float32))
            parameter.copy_(value if parameter.dim() == 1 else value.half().float())


def save(model: torch.nn.Module, spec: Spec, folder: Path):
    """The folder as transformers writes it, with what llama.cpp's converter wants beside the weights."""
    copy.deepcopy(model).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": spec.mean, "image_std": spec.std}))
    write_tokenizer("tekken", folder)


def pixels(spec: Spec, shape: tuple[int, int], seed: int) -> torch.Tensor:
    """[3, height, width] of normalised pixels: noise, so that no two patches are alike."""
    patch = spec.vision["patch_size"]
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((3, shape[0] * patch, shape[1] * patch), dtype=np.float32))


def encode(model: torch.nn.Module, images: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """For each image `vision_hidden` [patches, vision width] (the tower's output) and `embeddings` [cells, text width];
    all images in one batch, as transformers' processor pads it."""
    sizes = torch.tensor([image.shape[1:] for image in images])
    with torch.no_grad():
        output = model.get_image_features(pixel_values=pad(images), image_sizes=sizes, return_dict=True)
    patches = (sizes // model.model.vision_tower.patch_size).prod(dim=1).tolist()
    hidden = output.last_hidden_state[0].split(patches)
    return [
        {"vision_hidden": h.clone(), "embeddings": e.clone()} for h, e in zip(hidden, output.pooler_output, strict=True)
    ]


def pad(images: list[torch.Tensor]) -> torch.Tensor:
    height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
    return torch.stack([
        torch.nn.functional.pad(image, (0, width - image.shape[2], 0, height - image.shape[1])) for image in images
    ])


def prompt(spec: Spec, shapes: list[tuple[int, int]]) -> torch.Tensor:
    """<s>, then each image's run between stretches of text."""
    rng = np.random.default_rng(1000 + spec.seed)

    def text(length: int) -> list[int]:
        return rng.integers(len(MISTRAL_CONTROL), VOCAB_SIZE, length).tolist()

    ids = [special_id("tekken", "<s>"), *text(6)]
    for rows, cols in shapes:
        run = ([IMG] * (cols // spec.merge) + [IMG_BREAK]) * (rows // spec.merge)
        run[-1] = IMG_END
        ids += [*run, *text(5)]
    return torch.tensor(ids)


def logits(model: torch.nn.Module, ids: torch.Tensor, images: list[torch.Tensor]) -> torch.Tensor:
    sizes = torch.tensor([image.shape[1:] for image in images])
    with torch.no_grad():
        output = model(input_ids=ids[None], pixel_values=pad(images), image_sizes=sizes, use_cache=False)
    return output.logits[0].float().contiguous()


def reference(model: torch.nn.Module, spec: Spec, shapes: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """`input_ids` [n] and `logits` [n, vocab]; `pixel_values`, `vision_hidden` and `embeddings` of the image, with
    suffixes .0 and .1 where there are two."""
    images = [pixels(spec, shape, 2000 + spec.seed + i) for i, shape in enumerate(shapes)]
    out = {"input_ids": prompt(spec, shapes)}
    for i, (image, found) in enumerate(zip(images, encode(model, images), strict=True)):
        suffix = f".{i}" if len(images) > 1 else ""
        out |= {f"{name}{suffix}": value for name, value in ({"pixel_values": image} | found).items()}
    out["logits"] = logits(model, out["input_ids"], images)
    return {name: value.contiguous() for name, value in out.items()}
