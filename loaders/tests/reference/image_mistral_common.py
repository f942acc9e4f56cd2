#!/usr/bin/env python3
"""Makes fixtures/image: grids and pixel values of mistral-common, and files of every accepted kind as Pillow decodes them.

README.md says how to run it.
"""

import json
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
from image_files import bmp_top_down, gif_part_of_screen, jpeg_exif, png, png_exif_behind_pixels
from mistral_common.protocol.instruct.chunk import ImageChunk
from mistral_common.tokens.tokenizers.image import ImageConfig, ImageEncoder, SpecialImageIDs, _convert_to_rgb
from PIL import Image, ImageOps
from safetensors.numpy import save_file

OUT = Path(__file__).parent.parent / "fixtures" / "image"
PHOTOGRAPHS = Path(find_spec("skimage").origin).parent / "data"
SMALL_24B, PIXTRAL_12B = ImageConfig(14, 1540, 2), ImageConfig(16, 1024, 1)


def encoder(config):
    return ImageEncoder(config, SpecialImageIDs(img=0, img_break=1, img_end=2))


def photograph(name, box):
    # Without the metadata, which Pillow would write into every file.
    return Image.fromarray(np.array(Image.open(PHOTOGRAPHS / name).crop(box)))


class Size:
    """What the size rule reads of an image."""

    def __init__(self, size):
        self.size = size


def sizes():
    """200 sizes of every magnitude and shape, then sizes that the longest edge brings to exactly half a pixel."""
    rng = np.random.default_rng(4)
    pairs = [tuple(int(side) for side in np.exp(rng.uniform(0, np.log(12000), 2))) for _ in range(100)]
    pairs += [tuple(int(side) for side in rng.integers(200, 6000, 2)) for _ in range(100)]
    pairs += [(57, 3080), (3080, 113), (169, 3080), (33, 2048), (2048, 97), (4096, 66)]
    rows = []
    for pair in pairs:
        grids = [encoder(config)._image_to_num_tokens(Size(pair)) for config in (SMALL_24B, PIXTRAL_12B)]
        rows.append([*pair, *grids])
    lines = ",\n".join(json.dumps(row) for row in rows)
    (OUT / "sizes.json").write_text(f"[\n{lines}\n]\n")


def gradient(width, height):
    x, y = np.meshgrid(np.arange(width) / (width - 1), np.arange(height) / (height - 1))
    return Image.fromarray(np.stack([255 * x, 255 * y, 255 * (1 - x * y)], axis=2).round().astype(np.uint8))


def noise(width, height):
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8))


def palette(image):
    """Of 64 colours, the first few of them transparent in degrees."""
    image = image.quantize(64)
    return image, {"transparency": bytes([0, 64, 128, 200])}


def preprocessed():
    """name: image, longest edge, cell, how the file is written. Longest edges are small so that the fixtures are."""
    astronaut = photograph("astronaut.png", (130, 10, 290, 130))
    coffee = photograph("coffee.png", (250, 100, 340, 220))
    horse = Image.open(PHOTOGRAPHS / "horse.png").convert("RGBA").resize((82, 64))
    cat = photograph("chelsea.png", (100, 60, 270, 160))
    paletted, how = palette(photograph("chelsea.png", (120, 80, 177, 125)))
    return {
        "photograph-down.png": (astronaut, 84, 28, {}),
        "photograph-portrait.png": (coffee, 56, 28, {}),
        "photograph-up.png": (cat.crop((20, 20, 79, 63)), 1540, 28, {}),
        "photograph-aligned.png": (cat.crop((30, 30, 58, 58)), 1540, 28, {}),
        "gradient-up.png": (gradient(57, 30), 1540, 28, {}),
        "gradient-down.png": (gradient(300, 200), 56, 14, {}),
        "alpha.png": (horse, 56, 28, {}),
        "alpha-soft.png": (soft_alpha(cat.crop((0, 0, 60, 50))), 1540, 16, {}),
        "palette.png": (paletted, 48, 16, how),
        "grey.png": (astronaut.convert("L"), 48, 16, {}),
        "wide.png": (noise(4001, 5), 504, 8, {}),
        "high.png": (noise(5, 4001), 504, 8, {}),
        "one-pixel.png": (cat.crop((50, 50, 51, 51)), 1540, 28, {}),
        # Up to three pixels a side, OpenCV does not use Intel's library.
        "three-columns.png": (noise(3, 2999), 280, 8, {}),
        "one-row.png": (noise(3000, 1), 280, 8, {}),
        "420.jpg": (astronaut, 56, 28, {"quality": 85, "subsampling": "4:2:0"}),
        "420-same-size.jpg": (cat.crop((0, 0, 84, 56)), 84, 28, {"quality": 75, "subsampling": "4:2:0"}),
        "422.jpg": (coffee, 56, 28, {"quality": 90, "subsampling": "4:2:2", "restart_marker_rows": 1}),
        "progressive.jpg": (cat, 56, 28, {"quality": 90, "subsampling": "4:2:0", "progressive": True}),
        "444.jpg": (cat, 56, 28, {"quality": 95, "subsampling": "4:4:4"}),
        "grey.jpg": (cat.convert("L"), 56, 28, {"quality": 90}),
        "cmyk.jpg": (cat.convert("CMYK"), 56, 28, {"quality": 95}),
    }


def soft_alpha(image):
    """Every alpha from 0 to 255 against many colours."""
    image = image.convert("RGBA")
    alpha = np.arange(image.width * image.height).reshape(image.height, image.width) * 7 % 256
    image.putalpha(Image.fromarray(alpha.astype(np.uint8)))
    return image


def preprocess():
    cases, values = [], {}
    for name, (image, longest_edge, cell, how) in preprocessed().items():
        image.save(OUT / "preprocess" / name, **how)
        config = ImageConfig(cell, longest_edge)
        read = Image.open(OUT / "preprocess" / name)
        values[name] = np.ascontiguousarray(encoder(config)(ImageChunk(image=read)).image)
        cases.append({"file": name, "longest_edge": longest_edge, "cell": cell})
    (OUT / "preprocess.json").write_text(json.dumps(cases, indent=1) + "\n")
    save_file(values, OUT / "preprocess.safetensors")


def encoded(image, kind, **how):
    file = BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def as_read(file):
    """The RGB that mistral-common makes of a file's (first) image."""
    return np.array(_convert_to_rgb(Image.open(BytesIO(file))))


def over_white(array):
    return np.array(_convert_to_rgb(Image.fromarray(array)))


def decoded_by_pillow():
    photo = photograph("chelsea.png", (140, 90, 177, 119))
    grey, alpha = photo.convert("L"), soft_alpha(photo)
    grey_alpha = alpha.convert("LA")
    paletted, transparent = palette(photo)
    frames = [photo.quantize(32), ImageOps.mirror(photo).quantize(32)]
    see_through = photo.quantize(32)
    files = {
        "rgb.png": encoded(photo, "png"),
        "grey.png": encoded(grey, "png"),
        "interlaced.png": png(np.array(photo), interlaced=True),
        "grey-alpha.png": encoded(grey_alpha, "png"),
        "rgba.png": encoded(alpha, "png"),
        "palette.png": encoded(paletted, "png"),
        "palette-4-bits.png": encoded(photo.quantize(16), "png"),
        "palette-transparent.png": encoded(paletted, "png", **transparent),
        "grey-transparent.png": encoded(grey, "png", transparency=grey.getpixel((0, 0))),
        "black-and-white.png": encoded(photo.convert("1"), "png"),
        "24-bits.bmp": encoded(photo, "bmp"),
        "24-bits-top-down.bmp": bmp_top_down(encoded(photo, "bmp")),
        "32-bits.bmp": encoded(alpha, "bmp"),
        "palette.bmp": encoded(paletted, "bmp"),
        "grey.bmp": encoded(grey, "bmp"),
        "black-and-white.bmp": encoded(photo.convert("1"), "bmp"),
        "still.gif": encoded(frames[0], "gif"),
        "animated.gif": encoded(frames[0], "gif", save_all=True, append_images=frames[1:], duration=100),
        "transparent.gif": encoded(see_through, "gif", transparency=int(see_through.getpixel((5, 5)))),
        "part-of-screen.gif": gif_part_of_screen(encoded(see_through, "gif", transparency=3), (50, 40), (8, 6)),
        "lossless.webp": encoded(photo, "webp", lossless=True),
        "lossless-alpha.webp": encoded(alpha, "webp", lossless=True, exact=True),
        "lossy.webp": encoded(photo, "webp", quality=90),
        "lossy-alpha.webp": encoded(alpha, "webp", quality=90, exact=True),
        "animated.webp": encoded(photo, "webp", lossless=True, save_all=True, append_images=[ImageOps.mirror(photo)]),
        "baseline.jpg": encoded(photo, "jpeg", quality=95, subsampling="4:4:4"),
    }
    return {name: (file, as_read(file)) for name, file in files.items()}


def sixteen_bits():
    """Random samples: their upper 8 bits are given to Pillow, which reads few kinds of 16-bit files, and not so."""
    rng, files = np.random.default_rng(16), {}
    for name, channels in [("grey", 1), ("grey-alpha", 2), ("rgb", 3), ("rgba", 4)]:
        samples = rng.integers(0, 65536, (13, 17, channels), np.uint16)
        upper = (samples >> 8).astype(np.uint8)
        files[f"{name}-16-bits.png"] = (png(samples), over_white(upper[:, :, 0] if channels == 1 else upper))
    return files


def oriented():
    """The same pixels under each Exif orientation, and in JPEG, whose decoders differ, as large flat squares."""
    files = {}
    squares = np.random.default_rng(8).integers(0, 256, (3, 4, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    small = Image.fromarray(squares[::16, ::16])
    for value in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = value
        for kind, image, how in [
            ("png", small, {}),
            ("webp", small, {"lossless": True}),
            ("jpg", Image.fromarray(squares), {"quality": 100, "subsampling": "4:4:4"}),
        ]:
            file = encoded(image, "jpeg" if kind == "jpg" else kind, exif=exif, **how)
            upright = np.array(ImageOps.exif_transpose(Image.open(BytesIO(file))))
            files[f"orientation-{value}.{kind}"] = (file, upright)
    file, upright = files["orientation-6.png"]
    files["orientation-6-behind-pixels.png"] = (png_exif_behind_pixels(file), upright)
    file, upright = files["orientation-6.jpg"]
    files["orientation-6-little-endian.jpg"] = (jpeg_exif(file, 6), upright)
    return files


def large():
    """Of one colour, so that they are small: for what decoding takes of memory. All but the first are turned upright."""
    exif = Image.Exif()
    exif[0x0112] = 6
    opaque, soft = Image.new("RGB", (640, 480), (200, 60, 20)), Image.new("RGBA", (640, 480), (10, 200, 30, 128))
    return {
        "still.gif": encoded(soft, "gif"),
        "palette.png": encoded(opaque.quantize(4), "png", exif=exif),
        "rgba.png": encoded(soft, "png", exif=exif),
        "baseline.jpg": encoded(opaque, "jpeg", exif=exif),
        "progressive.jpg": encoded(opaque, "jpeg", exif=exif, progressive=True, subsampling="4:4:4"),
        "lossless.webp": encoded(soft, "webp", exif=exif, lossless=True),
        "lossy.webp": encoded(soft, "webp", exif=exif),
    }


def decode():
    pixels = {}
    for name, (file, rgb) in (decoded_by_pillow() | sixteen_bits() | oriented()).items():
        (OUT / "decode" / name).write_bytes(file)
        pixels[name] = np.ascontiguousarray(rgb)
    save_file(pixels, OUT / "decode.safetensors")
    for name, file in large().items():
        (OUT / "large" / name).write_bytes(file)


if __name__ == "__main__":
    for folder in ("preprocess", "decode", "large"):
        (OUT / folder).mkdir(parents=True, exist_ok=True)
    sizes()
    preprocess()
    decode()
