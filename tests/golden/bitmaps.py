"""BMP files as Pillow writes them, 7 x 5, for bmp_test.cc, which knows the pixels: files/formats/*.bmp.

    python bitmaps.py
"""
import pathlib

from PIL import Image

FILES = pathlib.Path(__file__).parent / "files" / "formats"
SIZE = (7, 5)


def color(i):
    return (i * 3 % 256, i * 5 % 256, i * 7 % 256)


for mode in ("1", "L", "P", "RGB", "RGBA"):
    image = Image.new(mode, SIZE)
    if mode == "P":
        image.putpalette([part for i in range(256) for part in color(i)])
    for y in range(SIZE[1]):
        for x in range(SIZE[0]):
            i = (x * 31 + y * 17) % 256
            image.putpixel((x, y), {"1": (x + y) % 2 * 255, "L": i, "P": i, "RGB": color(i), "RGBA": (*color(i), 9)}[mode])
    image.save(FILES / f"pillow_{mode}.bmp")
