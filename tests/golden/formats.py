"""Files as TensorFlow, Python and tiktoken write them, and what they read in ours.

    python formats.py write MERGES     tests/golden/files/formats/*, formats.json beside this script
    python formats.py verify           TensorFlow and Python read what our writers made (files/formats/ours*)

MERGES is GPT-2's vocab.bpe. Needs tensorflow for the records and tiktoken for the tokens: each part is left out where its
package is missing.
"""
import csv
import gzip
import io
import json
import pathlib
import struct
import sys
import tarfile

HERE = pathlib.Path(__file__).parent
FILES = HERE / "files" / "formats"
TEXTS = [
    "Hello, world! It's 2026: we'll see.",
    "  two blanks, a tab\tand\n\n\nthree lines  ",
    "don't can't I'm you've they'd 'tis 'S IT'S",
    "naïve café — Übergröße, 東京タワー, Привет мир, مرحبا, 한국어",
    "emoji 😀👩‍👩‍👧 flags 🇩🇪, ½ ² ③ Ⅻ 12345678901234567890",
    "a" * 300 + " " * 40 + "b\u00a0c\u2003d\u3000e\r\nf\x0bg\x1ch",
    "def f(x):\n    return x**2  # comment\n\n\tif x<=3 and y!=4: pass\n",
    "",
    " ",
    "\n",
    "x ",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
]
EXAMPLES = [
    {"label": [3], "weight": [0.5, -1.25, 3e38], "name": [b"first", b"", b"\x00\xff"], "big": [2**63 - 1, -(2**63), -1, 0]},
    {"label": [7], "image": [bytes(range(256)) * 5]},
    {"empty_ints": [], "label": [-1]},
]


def write_records():
    try:
        import tensorflow as tf
    except ImportError:
        return None

    def feature(values):
        if values and isinstance(values[0], bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
        if values and isinstance(values[0], float):
            return tf.train.Feature(float_list=tf.train.FloatList(value=values))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    messages = []
    for example in EXAMPLES:
        features = tf.train.Features(feature={name: feature(values) for name, values in example.items()})
        messages.append(tf.train.Example(features=features).SerializeToString(deterministic=True))
    for name, kind in (("tf.tfrecord", ""), ("tf.tfrecord.gz", "GZIP"), ("tf.tfrecord.zlib", "ZLIB")):
        with tf.io.TFRecordWriter(str(FILES / name), tf.io.TFRecordOptions(compression_type=kind)) as out:
            for message in messages:
                out.write(message)
    return tf.__version__


def write_tars():
    contents = [("a/0001.jpg", b"jpeg one"), ("a/0001.cls", b"3"), ("a/0002.seg.png", b"p" * 1000), ("a/0002.cls", b"4"), (("long" * 40) + "/x.txt", b"deep"), ("ü/ñ.txt", b"names"), ("a/empty.bin", b"")]
    for name, form in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        with tarfile.open(FILES / f"{name}.tar", "w", format=form) as out:
            folder = tarfile.TarInfo("a")
            folder.type = tarfile.DIRTYPE
            out.addfile(folder)
            for path, data in contents:
                if name == "ustar" and len(path) > 100:
                    path = "long" * 20 + "/" + "long" * 20 + "/x.txt"
                info = tarfile.TarInfo(path)
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))


def tar_contents():
    answer = {}
    for name in ("ustar", "gnu", "pax"):
        with tarfile.open(FILES / f"{name}.tar") as tar:
            answer[name] = [[m.name, tar.extractfile(m).read().decode("latin-1")] for m in tar if m.isfile()]
    return answer


def write_tables():
    rows = [["name", "text", "value"], ["plain", "a b", "1"], ["quoted", 'say "hi", twice', "-2.5e3"], ["lines", "one\ntwo\r\nthree", "0"], ["", "", ""], ["unicode", "Größe", "7"]]
    with open(FILES / "excel.csv", "w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(rows)
    with open(FILES / "unix.tsv", "w", newline="", encoding="utf-8-sig") as out:
        csv.writer(out, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    with gzip.GzipFile(FILES / "excel.csv.gz", "wb", mtime=0) as out:
        out.write((FILES / "excel.csv").read_bytes())
    return rows


def tokens(merges):
    try:
        import tiktoken
        from tiktoken.load import data_gym_to_mergeable_bpe_ranks
    except ImportError:
        return None
    vocabulary = pathlib.Path(merges).with_name("encoder.json")
    ranks = data_gym_to_mergeable_bpe_ranks(str(merges), str(vocabulary))
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
    gpt2 = tiktoken.Encoding("gpt2", explicit_n_vocab=50257, pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256})
    with gzip.GzipFile(FILES / "gpt2_merges.txt.gz", "wb", mtime=0) as out:
        out.write(pathlib.Path(merges).read_bytes())
    return {"tiktoken": tiktoken.__version__, "texts": TEXTS, "ids": [gpt2.encode_ordinary(t) for t in TEXTS]}


def write(merges):
    FILES.mkdir(parents=True, exist_ok=True)
    path = HERE / "formats.json"
    answer = json.loads(path.read_text()) if path.exists() else {}
    answer["made_by"] = "tests/golden/formats.py"
    if (version := write_records()) is not None:
        answer["tensorflow"] = version
    write_tars()
    answer["tar"] = tar_contents()
    answer["rows"] = write_tables()
    if (made := tokens(merges)) is not None:
        answer["bpe"] = made
    path.write_text(json.dumps(answer, indent=1) + "\n")


def verify():
    import tensorflow as tf

    for name, kind in (("ours.tfrecord", ""), ("ours.tfrecord.gz", "GZIP")):
        found = [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(FILES / name), kind)]
        assert len(found) == len(EXAMPLES), name
        for theirs, example in zip(found, EXAMPLES):
            assert set(theirs.features.feature) == set(example), name
            for key, values in example.items():
                feature = theirs.features.feature[key]
                got = list(getattr(feature, feature.WhichOneof("kind")).value)
                want = [struct.unpack("f", struct.pack("f", v))[0] if isinstance(v, float) else v for v in values]
                assert got == want, (name, key, got, want)
    print("TensorFlow", tf.__version__, "reads our records")


if __name__ == "__main__":
    verify() if sys.argv[1:] == ["verify"] else write(sys.argv[2])
