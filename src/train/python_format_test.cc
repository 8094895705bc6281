#include "train/python_format.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace pl::python_format_test {
namespace {

// Right-hand sides are Python's own answers.
TEST(PythonFormat, NumbersInPaths) {
  const auto text = [](const char* format) {
    return python_format(format, {{"epoch", 3}}, {{"val_loss", 0.12645}, {"big", 2.5e20}});
  };
  EXPECT_EQ(text("{epoch:02d}-{val_loss:.2f}.safetensors"), "03-0.13.safetensors");
  EXPECT_EQ(text("{epoch}"), "3");
  EXPECT_EQ(text("{epoch:4d}|{epoch:.1f}|{val_loss}"), "   3|3.0|0.12645");
  EXPECT_EQ(text("{val_loss:.3e}|{val_loss:g}|{val_loss:08.3f}|{val_loss:.1%}"),
            "1.265e-01|0.12645|0000.126|12.6%");
  EXPECT_EQ(text("{{{epoch}}}"), "{3}");
  EXPECT_EQ(text("{big}"), "2.5e+20");
}

TEST(PythonFormat, WhatIsNotUnderstoodIsNamed) {
  for (const char* format :
       {"{loss}", "{epoch", "epoch}", "{epoch:x}", "{val_loss:d}", "{}", "{epoch:999999999d}"})
    EXPECT_THROW(python_format(format, {{"epoch", 3}}, {{"val_loss", 0.5}}), UserError) << format;
}

TEST(PythonFormat, Repr) {
  EXPECT_EQ(python_repr(0.1), "0.1");
  EXPECT_EQ(python_repr(1), "1.0");
  EXPECT_EQ(python_repr(-0.0), "-0.0");
  EXPECT_EQ(python_repr(1e-5), "1e-05");
  EXPECT_EQ(python_repr(0.0001), "0.0001");
  EXPECT_EQ(python_repr(1e16), "1e+16");
  EXPECT_EQ(python_repr(123456789012345.0), "123456789012345.0");
  EXPECT_EQ(python_repr(0.6931471824645996), "0.6931471824645996");
  EXPECT_EQ(python_repr(std::nan("")), "nan");
}

}  // namespace
}  // namespace pl::python_format_test
