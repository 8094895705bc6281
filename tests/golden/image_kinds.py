"""Kinds of JPEG and PNG that cameras, scanners and programs write, 19 x 13, and what Pillow makes of each: files/kinds/NAME and
NAME.rgb, for image_kinds_test.cc.

    python image_kinds.py
"""
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

FILES = pathlib.Path(__file__).parent / "files" / "kinds"
FILES.mkdir(exist_ok=True)
HEIGHT, WIDTH = 13, 19
y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
PIXELS = np.stack([x * 13 % 256, y * 19 % 256, (x * 7 + y * 11) % 256], -1).astype(np.uint8)
COLOR = Image.fromarray(PIXELS)
GREY = COLOR.convert("L")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(array, depth, color_type, interlaced, extra=b""):
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)] if interlaced else [(0, 0, 1, 1)]
    rows = b"".join(b"\0" + row.astype(">u2" if depth == 16 else "u1").tobytes() for left, top, across, down in passes
                    for row in array[top::down, left::across] if row.size)
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, color_type, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def save(name, image, **options):
    image.save(FILES / name, **options)


save("cmyk.jpg", COLOR.convert("CMYK"), quality=92)
save("grey.jpg", GREY, quality=92)
save("progressive.jpg", COLOR, quality=92, progressive=True)
save("411.jpg", COLOR, quality=92, subsampling="4:1:1")
save("rgb.jpg", COLOR, quality=92, keep_rgb=True)
save("restarts.jpg", COLOR, quality=60, restart_marker_blocks=1)
turned = Image.Exif()
turned[0x112] = 6  # which readers of pixels do not obey
save("turned.jpg", COLOR, quality=92, exif=turned)
for bits in (1, 2, 4, 8):
    save(f"palette{bits}.png", COLOR.convert("P", palette=Image.Palette.ADAPTIVE, colors=2**bits), bits=bits)
palette = COLOR.convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
save("transparent.png", palette, transparency=3)
save("bits.png", GREY.convert("1"))
save("grey_alpha.png", Image.merge("LA", (GREY, GREY)))
wide = PIXELS.astype(np.uint16) * 257
alpha = np.full((HEIGHT, WIDTH, 1), 30000, np.uint16)
(FILES / "grey16.png").write_bytes(png(np.asarray(GREY).astype(np.uint16)[..., None] * 257, 16, 0, 0))
(FILES / "rgb16.png").write_bytes(png(wide, 16, 2, 0))
(FILES / "rgba16_interlaced.png").write_bytes(png(np.concatenate([wide, alpha], -1), 16, 6, 1))
(FILES / "interlaced.png").write_bytes(png(PIXELS, 8, 2, 1))
(FILES / "palette_interlaced.png").write_bytes(png(np.asarray(palette)[..., None], 8, 3, 1, chunk(b"PLTE", bytes(palette.getpalette()[:48]))))

for path in sorted(FILES.glob("*.*g")):
    image = Image.open(path)
    if image.mode.startswith("I"):  # 16 bits, of which the upper ones count
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    alpha = image.mode in ("LA", "RGBA") or "transparency" in image.info
    (FILES / (path.name + ".rgb")).write_bytes(np.asarray(image.convert("RGBA" if alpha else "RGB"))[..., :3].tobytes())
