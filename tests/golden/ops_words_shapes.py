"""The calls of ops_words.py about shapes, order, products and values from numbers."""

from ops_words_calls import ALL, FLOATS, INF, NAN, REALS, WHOLE, call, hashed, odd, values


def reshapes():
    x43 = hashed("float32", (4, 3))
    for shape in ((2, 6), (12,), (-1,), (3, -1), (-1, 2), (4, 3), (4, 3, 1), (1, 4, 3), (4, 1, 3), (4, -1), (6, 2), (2, 2, 3),
                  (4, 2), (4, 6), (4, 1), (2, 3), (), (5,), (-1, 5), (-1, -1), (0, -1), (0,), (4, -2), (4, 0), (-1, 3, 4)):
        call("reshape", x43, shape)
    for shape in ((2, 2, 0), (0, 3), (4, 0), (0,), (-1,), (2, 0), (1,), (4, 1)):
        call("reshape", hashed("int32", (4, 0)), shape)
    for shape in ((), (1,), (1, 1), (-1,), (2,), (0,)):
        call("reshape", hashed("float64", ()), shape)
    for dtype in ALL:
        call("reshape", odd(dtype), (1, -1))
        call("ravel", hashed(dtype, (2, 3, 2)))
        call("transpose", hashed(dtype, (2, 3)), ())
        call("transpose", hashed(dtype, (2, 3, 4)), (2, 0, 1))
        call("flip", hashed(dtype, (2, 3)), ())
        call("squeeze", hashed(dtype, (1, 3, 1)), ())
        call("broadcast_to", hashed(dtype, (3, 1)), (2, 3, 2))
    call("ravel", hashed("float32", ()))
    call("ravel", hashed("float32", (0, 3)))
    for order_ in ((), (0, 2, 1), (2, 1, 0), (1, 0, 2), (-1, 0, 1), (0, -1, -2), (0, 1), (0, 0, 1), (0, 1, 3), (0, 1, -4)):
        call("transpose", hashed("float32", (2, 3, 4)), order_)
    call("transpose", hashed("float32", ()), ())
    call("transpose", hashed("float32", (3,)), (0,))
    call("transpose", hashed("float32", (0, 3)), (1, 0))
    call("transpose", hashed("float64", (2, 3, 2, 2, 3)), (3, 1, 4, 0, 2))
    for a, b in ((0, 1), (0, -1), (-2, -1), (1, 1), (0, 3), (-4, 0)):
        call("swapaxes", hashed("float32", (2, 3, 4)), a, b)
        call("moveaxis", hashed("float32", (2, 3, 4)), a, b)
        call("moveaxis", hashed("int64", (2, 3, 4)), b, a)
    call("swapaxes", hashed("float32", ()), 0, 0)
    call("moveaxis", hashed("float32", ()), 0, 0)
    for axis in (0, 1, 2, -1, -2, -3, 3, -4):
        call("expand_dims", hashed("float32", (2, 3)), axis)
    for axis in (0, -1, 1):
        call("expand_dims", hashed("int32", ()), axis)
    for axis in ((), (0,), (-1,), (0, 2), (1,), (3,), (0, 0)):
        call("squeeze", hashed("float32", (1, 3, 1)), axis)
    call("squeeze", hashed("float32", ()), ())
    call("squeeze", hashed("float32", (1, 0)), ())
    for shape in ((3,), (2, 3), (1, 3), (0, 3), (2,), (3, 1), (), (-1,)):
        call("broadcast_to", hashed("float32", (3,)), shape)
    call("broadcast_to", hashed("float32", ()), (2, 2))
    call("broadcast_to", hashed("float32", (1, 0)), (3, 0))
    for axis in ((), (0,), (-1,), (0, 2), (3,), (0, 0), (-4,)):
        call("flip", hashed("float32", (2, 3, 4)), axis)
    call("flip", hashed("float32", ()), ())
    call("flip", hashed("float32", (0, 3)), (0,))


def permuted():
    """Sizes on both sides of what a kernel moves at once."""
    for dtype in ("float32", "uint8", "int64"):
        call("transpose", hashed(dtype, (19, 35)), (1, 0))
    for order_ in ((1, 0, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 1, 0)):
        call("transpose", hashed("float32", (5, 9, 4)), order_)
        call("transpose", hashed("bool", (3, 17, 2)), order_)
    for order_ in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 3, 2)):
        call("transpose", hashed("float32", (2, 3, 5, 4)), order_)
        call("transpose", hashed("float64", (2, 3, 5, 4)), order_)
    call("transpose", hashed("int32", (2, 1, 3, 1, 2, 2)), (5, 1, 3, 0, 4, 2))
    call("moveaxis", hashed("int32", (2, 3, 4, 2)), 1, -1)
    call("swapaxes", hashed("float64", (2, 3, 4, 2)), 0, 2)


def joined():
    for dtype in ALL:
        for axis in (0, 1, -1, 2, -3):
            parts = hashed(dtype, (2, 3)), hashed(dtype, (2, 3), 2)
            call("concatenate", axis, *parts)
            call("stack", axis, *parts)
        call("unstack", hashed(dtype, (2, 3)), 0)
        call("split", hashed(dtype, (2, 4)), 2, 1)
        call("slice", hashed(dtype, (3, 4)), (1, 0), (2, 3))
        call("repeat", hashed(dtype, (2, 2)), 3, 1)
        call("tile", hashed(dtype, (2, 2)), (2, 1, 3))
        call("roll", hashed(dtype, (2, 3)), 1, 1)
        call("pad", hashed(dtype, (2, 2)), (1, 0, 0, 2), 1)
    for a in ALL:
        for b in ALL:
            if a != b:
                call("concatenate", 0, hashed(a, (2,), 4, 1, 3), hashed(b, (1,), 5, 1, 3))
                call("stack", 0, hashed(a, (2,), 4, 1, 3), hashed(b, (2,), 5, 1, 3))
    call("concatenate", 0, hashed("float32", (2, 3)), hashed("float32", (0, 3)), hashed("float32", (1, 3)))
    call("concatenate", 0, hashed("float32", (2, 3)), hashed("float32", (2, 2)))
    call("concatenate", 0, hashed("float32", (2, 3)), hashed("float32", (3,)))
    call("concatenate", 0, hashed("float32", ()), hashed("float32", (), 2))
    call("concatenate", 0, values("int64", [2**53 + 1]), values("int32", [1]))
    call("concatenate", 0)
    call("stack", 0)
    call("stack", 0, hashed("float32", ()), hashed("float32", (), 2))
    call("stack", 0, hashed("float32", (2,)), hashed("float32", (3,)))
    for axis in (0, 1, -1, -2, 2):
        call("unstack", hashed("float32", (2, 3)), axis)
        call("split", hashed("float32", (4, 6)), 2, axis)
    call("unstack", hashed("float32", (2, 0)), 0)
    call("unstack", hashed("float32", ()), 0)
    for sections in (1, 3, 4, 6, 7, 0, -1):
        call("split", hashed("float32", (6,)), sections, 0)
    call("split", hashed("float32", (0, 2)), 2, 0)
    for start, size in (((0, 0), (3, 4)), ((1, 2), (-1, -1)), ((3, 0), (0, 4)), ((0, 0), (0, 0)), ((2, 0), (2, 1)), ((-1, 0), (1, 1)),
                        ((0, 5), (1, 0)), ((0,), (1,)), ((0, 0), (-2, 1)), ((4, 0), (-1, 1)), ((3, 4), (-1, -1))):
        call("slice", hashed("float32", (3, 4)), start, size)
    call("slice", hashed("float32", ()), (), ())
    for times in (1, 2, 0, -1):
        for axis in (0, 1, -1):
            call("repeat", hashed("float32", (2, 3)), times, axis)
    call("repeat", hashed("float32", (2, 3)), 2, 2)
    call("repeat", hashed("float32", ()), 2, 0)
    call("repeat", hashed("float32", (0, 3)), 2, 0)
    for repeats in ((2,), (1, 1), (2, 3), (2, 1, 1), (0,), (0, 2), (), (-1,), (1, -2)):
        call("tile", hashed("float32", (2, 3)), repeats)
        call("tile", values("int64", [10, 20, 30, 40, 50]), repeats)
    call("tile", hashed("float32", ()), (3,))
    call("tile", hashed("float32", ()), ())
    call("tile", hashed("float32", (0, 2)), (3, 2))
    for shift in (0, 1, -1, 5, -7, 10**12 + 1):
        for axis in (0, -1):
            call("roll", hashed("float32", (3, 4)), shift, axis)
    call("roll", hashed("float32", (0, 3)), 2, 0)
    call("roll", hashed("float32", (3,)), 2, 1)
    for width in ((0, 0, 0, 0), (1, 2, 0, 1), (2, 0, 0, 3), (-2, 0, 0, 0), (0, -1, 0, 0), (1, 1)):
        for value in (0, 0.5, NAN, -INF):
            call("pad", hashed("float32", (2, 3)), width, value)
    call("pad", hashed("float64", (2,)), (1, 1), 0.1)
    call("pad", values("int64", [1, 2]), (1, 1), 2**53 + 1)
    call("pad", values("int32", [1, 2]), (1, 1), 2**31 - 1)
    call("pad", hashed("float32", ()), (), 1)
    call("pad", hashed("float32", (0, 2)), (1, 1, 0, 0), 3)


def taken():
    for dtype in ALL:
        x5, x34 = values(dtype, [10, 20, 30, 40, 50]), hashed(dtype, (3, 4))
        for index in (0, 4, -1, -5, 5, -6):
            call("take", x5, index, 0)
        for index_dtype in WHOLE:
            call("take", x5, values(index_dtype, [0, 4, 2, 2, -1, -5]), 0)
            call("take_along_axis", x5, values(index_dtype, [0, 4, -1, -5, 2, 2, 2]), 0)
        call("take", x34, values("int32", [[0, -1], [2, 1]]), 0)
        call("take", x34, values("int64", [[0, -1], [3, 3]]), 1)
        call("take", x34, values("int32", [1, 1, -1]), -1)
        call("take", odd(dtype), values("int32", [0, 1, -1, -2]), 0)
        call("take_along_axis", x34, values("int32", [[0, 3, -1], [1, 1, 1], [-4, 2, 0]]), -1)
        call("take_along_axis", x34, values("int64", [[0, 2, -1, 1]]), 0)
        call("take_along_axis", odd(dtype), values("int32", [0, 1, -1, -2]), 0)
    for dtype in ("float32", "int64"):
        x5, x34 = values(dtype, [10, 20, 30, 40, 50]), hashed(dtype, (3, 4))
        for axis in (0, -1, 1):
            for index in (0, -1, 2, 3, -4):
                call("take", x34, index, axis)
        call("take", x34, values("int32", 1), 0)
        call("take", x34, values("int32", -1), 1)
        call("take", x34, 0, 2)
        call("take", x34, values("int32", [0]), 2)
        call("take", x34, values("int32", [0]), -3)
        for bad in ([5], [-6], [0, 7], [2**31 - 1], [-2**31]):
            call("take", x5, values("int32", bad), 0)
            call("take_along_axis", x5, values("int32", bad), 0)
        for bad in ([2**32], [2**32 + 1], [-2**32], [2**62], [-2**63]):
            call("take", x5, values("int64", bad), 0)
            call("take_along_axis", x5, values("int64", bad), 0)
        call("take", hashed(dtype, (0, 3)), values("int32", []), 0)
        call("take", hashed(dtype, (0, 3)), values("int32", []).reshape(0, 2), 0)
        call("take", hashed(dtype, (0, 3)), values("int32", [0]), 0)
        call("take", hashed(dtype, (0, 3)), values("int32", [0, -1]), 1)
        call("take", hashed(dtype, (2, 0)), values("int32", [0, 1]), 0)
        call("take", x34, values("int32", []), 0)
        call("take_along_axis", hashed(dtype, (0,)), values("int32", []), 0)
        call("take_along_axis", hashed(dtype, (0,)), values("int32", [0]), 0)
        call("take_along_axis", x34, values("int32", []).reshape(3, 0), 1)
        call("take_along_axis", x34, values("int32", [0, 1, 2]), 0)
        call("take_along_axis", x34, values("int32", [[0, 1]]), 1)
        call("take_along_axis", x34, values("int32", [[0, 1, 2, 0]]), 1)
        call("take_along_axis", x34, values("int32", [[0], [1], [2]]), 0)
        call("take_along_axis", x34, values("int32", [[0, 1], [0, 1]]), 1)
        call("take_along_axis", hashed(dtype, ()), values("int32", 0), 0)
    call("take", hashed("float32", ()), 0, 0)
    call("take", values("float32", [NAN, 1, INF]), values("int32", [1, 2]), 0)
    call("take_along_axis", values("float32", [NAN, 1, INF]), values("int32", [1, 2]), 0)
    for table in ("uint8", "bool"):
        call("take", hashed("float32", (4,)), hashed(table, (3,), 1, 0, 0.05), 0)


def shapes():
    reshapes()
    permuted()
    joined()
    taken()


def long_order():
    for dtype in ALL:
        long = hashed(dtype, (2, 131), 3, -1, 1)
        for word in ("argsort", "sort"):
            call(word, long, -1)
        call(word, hashed(dtype, (67, 2), 3), 0)
        call("top_k", long, 7)
    for dtype in FLOATS:
        long = hashed(dtype, (2, 131), 3, -1, 1)
        long[0, 5::9], long[1, ::4] = NAN, INF
        for word in ("argsort", "sort"):
            call(word, long, -1)
        call("top_k", long, 20)
    for dtype in ("float32", "int64", "uint8"):
        call("take", hashed(dtype, (21, 9)), hashed("int64", (4, 3), 1, -2, 2), 0)
        call("take", hashed(dtype, (3, 40, 2)), hashed("int32", (5,), 1, -2, 2), 1)
        call("take_along_axis", hashed(dtype, (3, 40)), hashed("int32", (3, 11), 1, -2, 2), 1)
        call("take_along_axis", hashed(dtype, (40, 5)), hashed("int64", (7, 5), 1, -2, 2), 0)


def order():
    long_order()
    for dtype in ALL:
        many = hashed(dtype, (3, 40), 2)
        for word in ("argsort", "sort"):
            call(word, odd(dtype), -1)
            call(word, many, -1)
            call(word, hashed(dtype, (3, 4, 2), 5), 1)
            call(word, hashed(dtype, (3, 4, 2), 5), 0)
        for k in (1, 3, 40):
            call("top_k", many, k)
        call("top_k", odd(dtype), 2)
    for word in ("argsort", "sort"):
        for dtype in FLOATS:
            call(word, values(dtype, [2, NAN, 1, 2, -1, INF, -INF, NAN, 0.0, -0.0]), -1)
        call(word, values("int64", [2**53 + 1, 2**53, 5, 2**63 - 1, 2**63 - 2, -2**63, -2**63 + 1]), 0)
        call(word, hashed("float32", (0,)), -1)
        call(word, hashed("float32", (0, 3)), 0)
        call(word, hashed("float32", (3, 0)), -1)
        call(word, hashed("float32", (3,)), 1)
        call(word, hashed("float32", ()), -1)
    for dtype in FLOATS:
        call("top_k", values(dtype, [2, NAN, 1, 2, -1]), 3)
        call("top_k", values(dtype, [0.0, -0.0, INF, -INF, 2, 2]), 6)
    call("top_k", values("int64", [2**53, 2**53 + 1, 5, 2**53 + 1]), 3)
    call("top_k", values("int32", [-2**31, 2**31 - 1, 0]), 3)
    for k in (0, -1, 4):
        call("top_k", hashed("float32", (2, 3)), k)
    call("top_k", hashed("float32", (0, 3)), 2)
    call("top_k", hashed("float32", ()), 1)


def products():
    pairs = (((2, 3), (3, 4)), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 2, 3), (3, 4)), ((2, 2, 3), (2, 3, 4)),
             ((2, 1, 2, 3), (2, 3, 4)), ((2, 3), (2, 3, 4)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((2, 3), (3, 0)), ((0,), (0,)),
             ((2, 3), (2, 3)), ((), (3,)), ((3,), ()), ((), ()), ((2, 2, 3), (3, 3, 4)), ((3,), (2, 3, 2)), ((2, 2, 3), (3,)))
    for word in ("matmul", "dot", "outer"):
        for a, b in pairs:
            for dtype in REALS if a == (2, 3) else ("float32", "int32"):
                call(word, hashed(dtype, a), hashed(dtype, b, 2))
        for a in ALL:
            for b in ALL:
                call(word, hashed(a, (2, 3), 4), hashed(b, (3, 2), 5))
        for dtype in FLOATS:
            call(word, values(dtype, [[1, NAN], [INF, 0]]), values(dtype, [[0, 1], [2, -INF]]))
            if word != "outer":
                call(word, hashed(dtype, (3, 70)), hashed(dtype, (70, 2), 2))
        call(word, values("int32", [[16777217, 1], [2**31 - 1, 2]]), values("int32", [[1, 3], [2, -5]]))
        call(word, values("int64", [[2**53 + 1, 1], [2**63 - 1, 2]]), values("int64", [[1, 3], [2, -5]]))
    for dtype in ("float32", "float64", "int32", "int64", "uint8"):
        call("matmul", hashed(dtype, (9, 35)), hashed(dtype, (35, 17), 2))
        call("matmul", hashed(dtype, (2, 5, 7)), hashed(dtype, (2, 7, 3), 2))
    x, y, z, t = (hashed("float32", s, i) for i, s in enumerate(((2, 3, 3), (2, 3, 3), (3, 3), (3, 3))))
    for equation, operands in (
            ("ii->i", (z,)), ("ii", (z,)), ("ij->ji", (z,)), ("ij->", (z,)), ("ij->i", (z,)), ("ij", (z,)), ("ji", (z,)), ("aii->ia", (x,)),
            ("aii", (x,)), ("...ii->...i", (x,)), ("iii->i", (hashed("float32", (3, 3, 3)),)), ("bij,bjk->bik", (x, y)),
            ("...d,de->...e", (x, z)), ("bij,bij->", (x, y)), ("bij,jk,kl->bil", (x, z, t)), ("ij,kl->ijkl", (z, t)),
            ("i,j->ij", (hashed("float32", (3,)), hashed("float32", (2,)))), ("ij,jk", (z, t)), ("ii,i->i", (z, hashed("float32", (3,)))),
            ("ij,ij->ij", (z, t)), ("...->...", (x,)), ("...,...->...", (x, z)), (",ij->ij", (hashed("float32", ()), z)),
            ("i,i->", (hashed("float32", (0,)), hashed("float32", (0,)))), ("ij,jk->ik", (hashed("float32", (0, 3)), z)),
            ("ij->k", (z,)), ("ijk->i", (z,)), ("ij,jk->ik", (z,)), ("ij,jk->ik", (z, hashed("float32", (2, 3)))), ("ij->ii", (z,)),
            ("i$->i", (z,)), ("", (hashed("float32", ()),)), ("->", (hashed("float32", ()),)), ("ij,ij->ij", (z, hashed("float32", (1, 3))))):
        call("einsum", equation, *operands)
    for dtype in ALL:
        call("einsum", "ij,jk->ik", hashed(dtype, (2, 3), 4), hashed(dtype, (3, 2), 5))
        call("einsum", "ij->i", hashed(dtype, (2, 3), 4))
        call("einsum", "ij,jk->ik", hashed(dtype, (2, 3), 4), hashed("float64", (3, 2), 5))
    call("einsum", "ij,jk->ik", values("int32", [[16777217, 1], [2**31 - 1, 2]]), values("int32", [[1, 3], [2, -5]]))
    call("einsum", "ij,jk->ik", values("int64", [[2**53 + 1, 1], [2**63 - 1, 2]]), values("int64", [[1, 3], [2, -5]]))


def softmaxes():
    for word in ("softmax", "log_softmax", "normalize"):
        for dtype in ALL:
            for axis in (-1, 0, 1):
                call(word, hashed(dtype, (2, 3, 4)), axis)
        for dtype in FLOATS:
            for numbers in ([NAN, 1], [INF, 1], [-INF, 1], [-INF, -INF], [1000, 1001], [-1000, -990], [0.0, 0.0], [3.0], [1e-13, 2e-13],
                            [1e15, 1e15]):
                call(word, values(dtype, numbers), 0)
            call(word, hashed(dtype, (3, 67), 1, -8, 8), 1)
        call(word, hashed("float32", (0, 3)), 1)
        call(word, hashed("float32", (3, 0)), 1)
        call(word, hashed("float32", (0, 3)), 0)
        call(word, hashed("float32", ()), -1)
        call(word, hashed("float32", (2, 3)), 2)
        call(word, hashed("float32", (2, 3)), -3)
    call("normalize", hashed("float32", (2, 3)), -1, 10.0)


def values_from_numbers():
    for source in ALL:
        for target in ALL:
            call("cast", odd(source), "" + target)
        call("full_like", odd(source), 3)
    call("full_like", hashed("float32", (2, 2)), NAN)
    call("full_like", hashed("int64", (2,)), 2**53 + 1)
    call("full_like", hashed("int32", (2,)), 2**31 - 1)
    call("full_like", hashed("float64", ()), 0.1)
    for dtype in ALL:
        for shape in ((2, 3), (), (0, 2)):
            call("zeros", shape, dtype)
            call("ones", shape, dtype)
            call("full", shape, 1, dtype)
        for n in (0, 1, 3):
            call("eye", n, dtype)
        for stop in (0, 1, 2, 9):
            if dtype != "bool":
                call("arange", stop, dtype)
    for word in ("zeros", "ones"):
        call(word, (-1,), "float32")
    for value in (2**53 + 1, 2**63 - 1, -2**63):
        call("full", (2,), value, "int64")
        call("constant", value, "int64")
    call("full", (2,), 2**31 - 1, "int32")
    call("full", (2,), 0.1, "float64")
    call("full", (2,), 0.1, "float32")
    for value in (NAN, INF, -INF, -0.0):
        call("full", (2,), value, "float32")
    call("arange", -1, "int32")
    call("eye", -1, "float32")
    for dtype in REALS:
        for start, stop, num in ((0.0, 1.0, 5), (-1.0, 2.0, 4), (3.0, 3.0, 3), (2.0, -2.0, 5), (0.0, 10.0, 7), (1.0, 9.0, 1), (1.0, 2.0, 0),
                                 (0.0, 1e9, 4), (0.5, 7.25, 6), (-5.5, 5.5, 8), (0.1, 0.7, 11)):
            call("linspace", start, stop, num, dtype)
    call("linspace", -3e38, 3e38, 3, "float32")
    call("linspace", -1.5e308, 1.5e308, 3, "float64")
    call("linspace", 0.0, 1.0, -1, "float32")
    call("linspace", 0.0, INF, 3, "float32")
    for dtype in ("int32", "int64", "uint8", "bool"):
        call("one_hot", values(dtype, [0, 1, 2, 1]), 3, "float32")
    for dtype in ALL:
        call("one_hot", values("int32", [[0, 2], [1, 0]]), 3, dtype)
    call("one_hot", values("int32", [-1, 0, 3, 2]), 3, "float32")
    call("one_hot", values("int64", [2**32, 2**32 + 1, -2**32, 1]), 3, "float32")
    call("one_hot", values("int32", 1), 3, "float32")
    call("one_hot", values("int32", []), 3, "float32")
    call("one_hot", values("int32", [0, 0]), 0, "float32")
    call("one_hot", values("int32", [0, 0]), -1, "float32")
