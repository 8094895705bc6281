"""data_images_peers.py KIND FOLDER [EPOCHS [THREADS]]: a folder of JPEGs to 224x224 batches of 32 with another library.
KIND: tf (tf.data with AUTOTUNE, tf.image.resize as it is by default), tf-antialias, tf-shuffle (1000 decoded images), torch (DataLoader, torchvision.io), pillow (DataLoader, Pillow).
One line of JSON: images/s of the best epoch, CPU time per image of all threads and processes (on a busy machine the only figure that stays), growth of resident memory of all processes."""
import glob, json, os, resource, sys, threading, time

kind, folder = sys.argv[1], sys.argv[2]
epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
threads = int(sys.argv[4]) if len(sys.argv) > 4 else 2
files = sorted(glob.glob(os.path.join(folder, "**", "*.jpg"), recursive=True))


def processes():
    me, kids = os.getpid(), {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent = int(open("/proc/%s/stat" % name).read().rsplit(")", 1)[1].split()[1])
                kids.setdefault(parent, []).append(int(name))
            except OSError:
                pass
    found, todo = [], [me]
    while todo:
        found.append(todo.pop())
        todo += kids.get(found[-1], [])
    return found


def resident():
    total = 0
    for pid in processes():
        try:
            for line in open("/proc/%d/smaps_rollup" % pid):
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total / 1024


def cpu():
    ticks = 0
    for pid in processes():
        try:
            fields = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


if kind.startswith("tf"):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)

    def load(path):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.cast(tf.image.resize(image, (224, 224), antialias=kind == "tf-antialias"), tf.uint8)

    data = tf.data.Dataset.from_tensor_slices(files).map(load, num_parallel_calls=tf.data.AUTOTUNE)
    if kind == "tf-shuffle":
        data = data.shuffle(1000)
    data = data.batch(32).prefetch(tf.data.AUTOTUNE)
else:
    import numpy, torch, torchvision
    from PIL import Image
    from torchvision.transforms.v2 import functional as F

    torch.set_num_threads(1)

    class Files:
        def __len__(self):
            return len(files)

        def __getitem__(self, i):
            if kind == "pillow":
                return torch.from_numpy(numpy.array(Image.open(files[i]).convert("RGB").resize((224, 224), Image.BILINEAR)))
            image = torchvision.io.decode_jpeg(torchvision.io.read_file(files[i]), torchvision.io.ImageReadMode.RGB)
            return F.resize(image, [224, 224], antialias=True)

    data = torch.utils.data.DataLoader(Files(), 32, num_workers=threads, persistent_workers=True)

before, peak, done = resident(), [0.0], threading.Event()


def watch():
    while not done.wait(0.3):
        peak[0] = max(peak[0], resident())


threading.Thread(target=watch, daemon=True).start()
rate, best_cpu = 0.0, 1e9
for epoch in range(epochs):
    start, used, count = time.perf_counter(), cpu(), 0
    for batch in data:
        count += batch.shape[0]
    rate = max(rate, count / (time.perf_counter() - start))
    best_cpu = min(best_cpu, (cpu() - used) / count)
done.set()
print(json.dumps({"kind": kind, "images": len(files), "images_per_s": round(rate, 1), "cpu_ms_per_image": round(best_cpu * 1e3, 3), "growth_mib": round(max(peak[0], resident()) - before, 1)}))
