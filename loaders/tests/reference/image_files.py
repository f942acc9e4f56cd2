"""Files that Pillow does not write: 16-bit and interlaced PNGs, metadata in unusual places, a GIF frame that leaves the screen bare."""

import struct
import zlib


def png_chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_chunks(file):
    """(type, whole chunk) of each."""
    at = 8
    while at < len(file):
        end = at + 12 + struct.unpack_from(">I", file, at)[0]
        yield file[at + 4 : at + 8], file[at:end]
        at = end


def png(samples, interlaced=False):
    """Of [height, width, channels] 8- or 16-bit samples."""
    height, width, channels = samples.shape
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    samples = samples.astype(samples.dtype.newbyteorder(">"))
    # First column and row, and the distance to the next: Adam7's passes, or one.
    adam7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    passes = [samples[y::dy, x::dx] for x, y, dx, dy in (adam7 if interlaced else [(0, 0, 1, 1)])]
    rows = b"".join(b"\0" + row.tobytes() for part in passes for row in part)
    header = struct.pack(">IIBBBBB", width, height, 8 * samples.itemsize, color, 0, 0, int(interlaced))
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", zlib.compress(rows))
        + png_chunk(b"IEND", b"")
    )


def png_exif_behind_pixels(file):
    chunks = sorted(png_chunks(file), key=lambda chunk: {b"eXIf": 1, b"IEND": 2}.get(chunk[0], 0))
    return file[:8] + b"".join(chunk for _, chunk in chunks)


def jpeg_exif(file, orientation):
    """With little-endian Exif in place of the file's own, behind another entry."""
    entries = struct.pack("<HHIHH", 0x0100, 3, 1, 64, 0) + struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 2) + entries + struct.pack("<I", 0)
    at = 2
    while file[at + 1] in (0xE0, 0xE1):
        at += 2 + struct.unpack_from(">H", file, at + 2)[0]
    return b"\xff\xd8\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + file[at:]


def bmp_top_down(file):
    """Of a bottom-up file without compression."""
    pixels, height = (struct.unpack_from("<i", file, at)[0] for at in (10, 22))
    stride = (len(file) - pixels) // height
    rows = [file[at : at + stride] for at in range(pixels, len(file), stride)]
    return file[:22] + struct.pack("<i", -height) + file[26:pixels] + b"".join(reversed(rows))


def gif_part_of_screen(file, screen, corner):
    """The file's only frame at `corner` of a larger screen."""
    file = bytearray(file)
    struct.pack_into("<HH", file, 6, *screen)
    frame = file.rindex(b"\x2c\0\0\0\0")
    struct.pack_into("<HH", file, frame + 1, *corner)
    return bytes(file)
